// SPDX-License-Identifier: Apache-2.0
//! Byte chunks to lines, with bounded memory.

/// Cuts a byte stream at newlines, whatever the size of the chunks it arrives in.
#[derive(Debug)]
pub struct LineSplitter {
    partial: Vec<u8>,
    longest: usize,
}

impl LineSplitter {
    /// A splitter that delivers lines longer than `longest` bytes in pieces.
    pub fn new(longest: usize) -> Self {
        Self {
            partial: Vec::new(),
            longest,
        }
    }

    /// Take `chunk`, call `deliver` for each line it completes (without the newline).
    pub fn feed(&mut self, chunk: &[u8], mut deliver: impl FnMut(&[u8])) {
        let mut remaining = chunk;
        while let Some(end) = remaining.iter().position(|byte| *byte == b'\n') {
            if self.partial.is_empty() {
                deliver(&remaining[..end]);
            } else {
                self.partial.extend_from_slice(&remaining[..end]);
                deliver(&std::mem::take(&mut self.partial));
            }
            remaining = &remaining[end + 1..];
        }
        self.partial.extend_from_slice(remaining);
        if self.partial.len() >= self.longest {
            deliver(&std::mem::take(&mut self.partial));
        }
    }

    /// The stream has ended: deliver what came after the last newline, if anything did.
    pub fn finish(&mut self, mut deliver: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            deliver(&std::mem::take(&mut self.partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]], longest: usize) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut splitter = LineSplitter::new(longest);
        for chunk in chunks {
            splitter.feed(chunk, |line| lines.push(line.to_vec()));
        }
        splitter.finish(|line| lines.push(line.to_vec()));
        lines
    }

    #[test]
    fn a_line_longer_than_the_limit_comes_in_pieces_and_loses_nothing() {
        let pieces = split(&[b"abcd", b"efgh", b"ij\nk"], 6);
        assert_eq!(
            pieces,
            [b"abcdefgh".to_vec(), b"ij".to_vec(), b"k".to_vec()]
        );
    }

    #[test]
    fn empty_lines_are_lines_and_an_unfinished_last_one_counts() {
        assert_eq!(
            split(&[b"\n\nx"], 100),
            [b"".to_vec(), b"".to_vec(), b"x".to_vec()]
        );
    }

    proptest! {
        #[test]
        fn chunk_borders_do_not_matter(
            lines in prop::collection::vec("[a-z]{0,9}", 0..9),
            sizes in prop::collection::vec(1usize..7, 0..90),
        ) {
            let text: Vec<u8> = lines.iter().flat_map(|l| format!("{l}\n").into_bytes()).collect();
            let mut chunks: Vec<&[u8]> = Vec::new();
            let mut remaining = &text[..];
            for size in sizes {
                let (chunk, tail) = remaining.split_at(size.min(remaining.len()));
                chunks.push(chunk);
                remaining = tail;
            }
            chunks.push(remaining);
            let got: Vec<String> =
                split(&chunks, 1000).into_iter().map(|l| String::from_utf8(l).unwrap()).collect();
            prop_assert_eq!(got, lines);
        }
    }
}

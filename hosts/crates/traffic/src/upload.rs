// SPDX-License-Identifier: Apache-2.0
//! Uploads, as both ends of a connection see them: a request, the client's bytes, and the server's receipt.
//!
//! The request is that of a download ([`crate::serve`]) with its highest bit set. The server confirms what it has received by
//! eight bytes, big-endian, and closes: an upload is complete when its receipt has arrived. What the client's own kernel
//! says would not do, as a connection-splitting PEP acknowledges bytes that the server does not have.

use atoll_netio::tcp_options::progress;
use nix::errno::Errno;
use rustix::net::{SendFlags, send};
use std::io::{self, Read};
use std::net::TcpStream;

/// The bit of a request that makes it one of an upload.
const UPLOAD: u64 = 1 << 63;

/// What a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The server is to send so many bytes.
    Download(u64),
    /// The client sends so many bytes.
    Upload(u64),
}

impl Request {
    /// As on the connection.
    pub fn to_bytes(self) -> [u8; 8] {
        match self {
            Self::Download(bytes) => bytes.to_be_bytes(),
            Self::Upload(bytes) => (bytes | UPLOAD).to_be_bytes(),
        }
    }

    /// That of these bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        let number = u64::from_be_bytes(bytes);
        if number & UPLOAD == 0 {
            Self::Download(number)
        } else {
            Self::Upload(number & !UPLOAD)
        }
    }
}

/// Send the request of an upload, in one segment with the bytes that follow: alone it would be a small segment, and while
/// that is not acknowledged, the kernel holds the last bytes of the first window back (Nagle's algorithm).
///
/// # Errors
/// Those of the connection.
pub fn announce(stream: &TcpStream, size_bytes: u64) -> io::Result<()> {
    let request = Request::Upload(size_bytes).to_bytes();
    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    // Eight bytes always fit into the buffer of a new connection; one that has failed says here why.
    if send(stream, &request, flags)? < request.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

/// How many of an upload's `size_bytes` are acknowledged: by a connection-splitting PEP, if there is one.
pub fn acknowledged_bytes(stream: &TcpStream, size_bytes: u64) -> u64 {
    let acknowledged = progress(stream).map_or(0, |progress| progress.acknowledged_bytes);
    let before = 1 + 8; // SYN, and the request
    acknowledged.saturating_sub(before).min(size_bytes)
}

/// What a client has read of a receipt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receipt {
    /// One more than it has, so that a read of too many is seen.
    bytes: [u8; 9],
    /// How many of them were read.
    pub length: usize,
}

impl Receipt {
    /// Read once; at the end of the stream the number of bytes that the server confirms.
    ///
    /// # Errors
    /// Those of the connection; `ENODATA` if it ended before the receipt, `EPROTO` if there was more.
    pub fn read(&mut self, mut stream: &TcpStream) -> io::Result<Option<u64>> {
        let count = stream.read(&mut self.bytes[self.length..])?;
        self.length += count;
        match (self.length, count) {
            (9, _) => Err(error(Errno::EPROTO)),
            (8, 0) => {
                let [confirmed @ .., _] = self.bytes;
                Ok(Some(u64::from_be_bytes(confirmed)))
            }
            (_, 0) => Err(error(Errno::ENODATA)),
            _ => Ok(None),
        }
    }
}

fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::errno_name;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_request_says_its_direction() {
        for request in [Request::Download(400), Request::Upload(400)] {
            assert_eq!(Request::from_bytes(request.to_bytes()), request);
        }
        assert_eq!(Request::Download(400).to_bytes(), 400_u64.to_be_bytes());
    }

    #[test]
    fn a_receipt_is_eight_bytes_and_the_end_of_the_stream() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let read_all = |said: &[u8]| {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            server.write_all(said).unwrap();
            drop(server);
            let mut receipt = Receipt::default();
            loop {
                match receipt.read(&stream) {
                    Ok(None) => {}
                    Ok(Some(bytes)) => return Ok(bytes),
                    Err(error) => return Err(errno_name(&error)),
                }
            }
        };
        assert_eq!(read_all(&10_000_u64.to_be_bytes()), Ok(10_000));
        assert_eq!(read_all(&[0; 7]), Err("ENODATA".into()));
        assert_eq!(read_all(&[0; 9]), Err("EPROTO".into()));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Things by a small number that is used again once its thing is gone.

/// A store whose numbers stay as small as the most it ever held.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slots<T> {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// How many things it holds.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number that the next thing to be inserted will have.
    pub fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Put something in, at [`Slots::next`].
    pub fn insert(&mut self, thing: T) {
        match self.free.pop() {
            Some(number) => self.slots[number] = Some(thing),
            None => self.slots.push(Some(thing)),
        }
    }

    /// The thing of that number, if it is there.
    pub fn get(&mut self, number: usize) -> Option<&mut T> {
        self.slots.get_mut(number).and_then(Option::as_mut)
    }

    /// Take the thing of that number out, if it is there.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        let found = self.slots.get_mut(number).and_then(Option::take);
        if found.is_some() {
            self.free.push(number);
        }
        found
    }

    /// Take out those that `gone` says of, in the order of their numbers.
    pub fn take(&mut self, mut gone: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let found: Vec<usize> = (0..self.slots.len())
            .filter(|number| self.get(*number).is_some_and(&mut gone))
            .collect();
        found
            .into_iter()
            .filter_map(|number| self.remove(number))
            .collect()
    }

    /// All things, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_gone_things_are_gone() {
        let mut slots = Slots::new();
        for thing in ["a", "b", "c"] {
            slots.insert(thing);
        }
        assert_eq!(slots.remove(1), Some("b"));
        assert_eq!((slots.remove(1), slots.remove(9)), (None, None));
        assert_eq!((slots.len(), slots.next(), slots.get(1)), (2, 1, None));
        slots.insert("d");
        assert_eq!((slots.next(), slots.get(1)), (3, Some(&mut "d")));
        assert_eq!(slots.all().collect::<Vec<_>>(), [&"a", &"d", &"c"]);
    }
}

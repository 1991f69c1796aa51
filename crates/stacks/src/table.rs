//! Every stack once, under a small number.
//!
//! Invariant: entries are added and never changed or removed, so a stack's frames can be had without a
//! lock by threads that have looked them up once, and numbers stay good as long as the process.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU32;
use std::sync::{PoisonError, RwLock};

use super::Stack;
use super::walk::hash_of;

/// Most stacks that are kept; a program that has more has unbounded recursion or the like.
const MAX_STACKS: usize = 1 << 18;
const SHARDS: usize = 16;

/// Stacks that threads share.
#[derive(Debug)]
pub struct StackTable {
    /// Numbers of stacks, by hash.
    shards: [RwLock<Numbers>; SHARDS],
    stacks: RwLock<Vec<&'static [u64]>>,
}

type Numbers = HashMap<u64, NonZeroU32, BuildHasherDefault<AsItIs>>;

/// For keys that are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl StackTable {
    const fn new() -> Self {
        Self {
            shards: [const { RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())) }; SHARDS],
            stacks: RwLock::new(Vec::new()),
        }
    }

    /// The table of this process.
    pub fn shared() -> &'static Self {
        static SHARED: StackTable = StackTable::new();
        &SHARED
    }

    /// Number of stacks in it.
    pub fn len(&self) -> usize {
        self.stacks.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stack with these frames, innermost first, adding it if it is new; none where there are no
    /// frames, or no room.
    pub fn intern(&self, frames: &[u64]) -> Option<Stack> {
        self.intern_hashed(frames, hash_of(frames)).map(|(stack, _)| stack)
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, stack: Stack) -> &'static [u64] {
        let stacks = self.stacks.read().unwrap_or_else(PoisonError::into_inner);
        stacks.get(stack.0.get() as usize - 1).copied().unwrap_or_default()
    }

    /// Returns the stack with these frames, which hash to `hash`, and where they are kept.
    fn intern_hashed(&self, frames: &[u64], hash: u64) -> Option<(Stack, &'static [u64])> {
        if frames.is_empty() {
            return None;
        }
        // Different stacks of the same hash take the next ones.
        let mut key = hash;
        loop {
            match self.find(key) {
                Some(found) if found.1 == frames => return Some(found),
                Some(_) => key = key.wrapping_add(1),
                None => match self.add(key, frames)? {
                    found if found.1 == frames => return Some(found),
                    _ => {}
                },
            }
        }
    }

    fn shard(&self, key: u64) -> &RwLock<Numbers> {
        &self.shards[(key >> 32) as usize % SHARDS]
    }

    fn find(&self, key: u64) -> Option<(Stack, &'static [u64])> {
        let numbers = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        let stack = Stack(*numbers.get(&key)?);
        drop(numbers);
        Some((stack, self.frames(stack)))
    }

    /// Adds a stack under a key, unless another thread has added one meanwhile; returns what is there.
    fn add(&self, key: u64, frames: &[u64]) -> Option<(Stack, &'static [u64])> {
        let mut numbers = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(&key) {
            return Some((Stack(*number), self.frames(Stack(*number))));
        }
        let mut stacks = self.stacks.write().unwrap_or_else(PoisonError::into_inner);
        if stacks.len() >= MAX_STACKS {
            return None;
        }
        let kept: &'static [u64] = Box::leak(frames.into());
        stacks.push(kept);
        let number = NonZeroU32::new(stacks.len() as u32)?;
        numbers.insert(key, number);
        Some((Stack(number), kept))
    }
}

/// Stacks of the shared table that a thread has met: found without touching what threads share.
pub(super) struct Known {
    entries: Box<[Entry]>,
}

const KNOWN: usize = 1024;

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    stack: Option<Stack>,
    frames: &'static [u64],
}

impl Default for Known {
    fn default() -> Self {
        Self { entries: vec![Entry { hash: 0, stack: None, frames: &[] }; KNOWN].into_boxed_slice() }
    }
}

impl Known {
    /// The stack with these frames, which hash to `hash`.
    #[inline]
    pub(super) fn intern(&mut self, frames: &[u64], hash: u64) -> Option<Stack> {
        let entry = &mut self.entries[(hash >> 32) as usize % KNOWN];
        if entry.hash == hash && entry.frames == frames {
            return entry.stack;
        }
        Self::meet(entry, frames, hash)
    }

    #[cold]
    fn meet(entry: &mut Entry, frames: &[u64], hash: u64) -> Option<Stack> {
        let (stack, frames) = StackTable::shared().intern_hashed(frames, hash)?;
        *entry = Entry { hash, stack: Some(stack), frames };
        Some(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_kept_once_even_where_hashes_meet() {
        let table = StackTable::new();
        assert!(table.is_empty() && table.intern(&[]).is_none());
        let first = table.intern_hashed(&[1, 2, 3], 7).unwrap();
        let second = table.intern_hashed(&[1, 2], 7).unwrap();
        let third = table.intern_hashed(&[9], 8).unwrap();
        assert_eq!(table.len(), 3);
        for (found, frames, hash) in [(first, &[1, 2, 3][..], 7), (second, &[1, 2], 7), (third, &[9], 8)] {
            assert_eq!(table.intern_hashed(frames, hash), Some(found));
            assert_eq!(table.frames(found.0), frames);
        }
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn threads_agree_on_numbers() {
        let table = StackTable::new();
        let all = |table: &StackTable| -> Vec<_> {
            (0..2000_u64).map(|at| table.intern(&[at % 500, 5, at % 7]).unwrap()).collect()
        };
        let found = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| all(&table))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(found.iter().all(|numbers| *numbers == found[0]));
        assert_eq!(table.len(), 2000);
    }
}

//! Global ids: hardware, virtual machine, process and thread in one number.
//!
//! Bits 0–23 are the thread, 24–47 the process, 48–55 the virtual machine, 56–63 the hardware. The number
//! is negative where the hardware's is high, so it is masked and never divided.

/// A process on whatever machine: a global id without its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessKey(pub(crate) u64);

impl ProcessKey {
    /// The process of a global id of a process or thread.
    #[inline]
    pub(crate) fn of(global: i64) -> Self {
        Self(global as u64 >> 24)
    }

    /// Operating system's number.
    pub(crate) fn pid(self) -> u32 {
        (self.0 & 0xff_ffff) as u32
    }

    /// The global id, as exports have it.
    pub(crate) fn global(self) -> i64 {
        (self.0 << 24) as i64
    }
}

/// Operating system's number of the thread in a global id.
#[inline]
pub(crate) fn thread_of(global: i64) -> u32 {
    (global as u64 & 0xff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_apart_whatever_their_sign() {
        let global = 281_796_478_500_864 + 42;
        assert_eq!((ProcessKey::of(global).pid(), thread_of(global)), (19163, 42));
        assert_eq!(ProcessKey::of(global).global(), 281_796_478_500_864);
        let high = -144_115_188_075_855_872 + (77 << 24) + 5;
        assert_eq!((ProcessKey::of(high).pid(), thread_of(high)), (77, 5));
        assert!(ProcessKey::of(high).global() < 0);
        assert_ne!(ProcessKey::of(high), ProcessKey::of(77 << 24));
    }
}

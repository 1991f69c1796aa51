//! Walks the calling thread's stack by remembered rules.
//!
//! Every thread remembers the rules of the return addresses it has met, so that a step is one look-up
//! and one or two reads of the stack. Invariants: nothing is read but the thread's own stack between
//! the stack pointer and the stack's end; a step always goes towards that end, so a walk ends; nothing
//! here panics; nothing is allocated once a thread has its memory and knows the modules.
//!
//! Code that was unloaded may have been replaced by other code at the same addresses. A thread asks
//! whether something was unloaded whenever it meets something new or strange, and now and then besides.
#![expect(unsafe_code, reason = "reads the stack")]

use std::cell::Cell;

use super::loader::{Loads, Modules};
use super::recorded::Recorded;
use super::remembered::{RememberedRules, look_up};
use super::rules::{Context, Kind, Rule, SAVED_BASE, SAVED_INSTRUCTION, SAVED_STACK};
use super::table::Known;
use super::{MAX_FRAMES, system};

/// What a walk starts from: the registers of a function that does not return before the walk is over.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Instruction pointer.
    pub instruction: u64,
    /// Stack pointer.
    pub stack: u64,
    /// Frame pointer, if the function keeps one.
    pub base: u64,
}

/// The [`Registers`] of the function that this is written in, whose callers are to be found.
///
/// A macro, since a function that is not inlined would give its own.
#[macro_export]
macro_rules! registers {
    () => {{
        #[cfg(target_arch = "x86_64")]
        {
            let (instruction, stack, base): (u64, u64, u64);
            // SAFETY: copies three registers.
            unsafe {
                std::arch::asm!(
                    "lea {instruction}, [rip]",
                    "mov {stack}, rsp",
                    "mov {base}, rbp",
                    instruction = out(reg) instruction,
                    stack = out(reg) stack,
                    base = out(reg) base,
                    options(nomem, nostack, preserves_flags)
                );
            }
            $crate::Registers { instruction, stack, base }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let here = 0_u8;
            let stack = (&raw const here).addr() as u64;
            $crate::Registers { instruction: 0, stack, base: 0 }
        }
    }};
}

/// After how many walks a thread asks whether something was unloaded.
pub(super) const TRUST: u32 = 1024;

/// What a thread needs to walk its stack.
pub(super) struct Walker {
    /// Where the thread's stack begins and ends.
    low: u64,
    high: u64,
    rules: Box<RememberedRules>,
    walks: u32,
    modules: Modules,
    context: Box<Context>,
    /// What was found last.
    pub(super) frames: [u64; MAX_FRAMES],
    /// Stacks that this thread has met.
    pub(super) known: Known,
    /// What they are called in the recording.
    pub(super) recorded: Recorded,
}

/// Why a walk ended.
enum End {
    /// There is no further caller, or no room for it.
    Whole,
    /// What should be the stack is not.
    Lost,
    /// There is no rule at this address.
    NoRule(u64),
}

/// What a walk found: the number of frames, and a hash of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) count: usize,
    pub(super) hash: u64,
}

impl Walker {
    fn new() -> Option<Box<Self>> {
        let (low, high) = stack_bounds()?;
        Some(Box::new(Self {
            low,
            high,
            rules: RememberedRules::boxed(),
            walks: 0,
            modules: Modules::default(),
            context: Box::new(Context::new_in()),
            frames: [0; MAX_FRAMES],
            known: Known::default(),
            recorded: Recorded::default(),
        }))
    }

    /// Finds the callers of the function with these registers.
    #[inline]
    pub(super) fn walk(&mut self, registers: Registers) -> Found {
        if registers.stack < self.low || registers.stack >= self.high {
            // A signal handler's stack or a coroutine's: its end is not known.
            return Found { count: 0, hash: 0 };
        }
        self.walks = self.walks.wrapping_add(1);
        if self.walks.is_multiple_of(TRUST) {
            self.forget_unloaded();
        }
        let (found, end) = self.steps(registers);
        match end {
            End::Whole => found,
            End::Lost | End::NoRule(_) => self.walk_again(registers, found, &end),
        }
    }

    /// What remains to be done when something was strange.
    #[cold]
    fn walk_again(&mut self, registers: Registers, found: Found, end: &End) -> Found {
        let (mut found, mut end) = (found, end);
        let second;
        if self.forget_unloaded() {
            second = self.steps(registers);
            (found, end) = (second.0, &second.1);
        }
        let End::NoRule(address) = *end else { return found };
        let count = system::walk(registers.stack, &mut self.frames);
        // It knows no caller either, and need not be asked again.
        if count == found.count {
            self.rules.remember(address, Rule::OUTERMOST);
        }
        Found { count, hash: hash_of(&self.frames[..count]) }
    }

    #[inline]
    fn steps(&mut self, Registers { instruction, mut stack, mut base }: Registers) -> (Found, End) {
        let mut found = Found { count: 0, hash: 0 };
        let mut address = instruction;
        let end = loop {
            let rule = self.rule(address);
            let frame = match rule.kind {
                Kind::FromStack => stack.wrapping_add_signed(i64::from(rule.frame)),
                Kind::FromBase => base.wrapping_add_signed(i64::from(rule.frame)),
                Kind::ThroughBase => {
                    let Some(frame) = self.read(base.wrapping_add_signed(i64::from(rule.frame)), stack)
                    else {
                        break End::Lost;
                    };
                    frame
                }
                Kind::Signal => {
                    let saved = |offset| self.read(stack.wrapping_add(offset), stack);
                    let (Some(frame), Some(saved_base), Some(interrupted)) =
                        (saved(SAVED_STACK), saved(SAVED_BASE), saved(SAVED_INSTRUCTION))
                    else {
                        break End::Lost;
                    };
                    if frame <= stack || frame >= self.high || interrupted == 0 {
                        break End::Lost;
                    }
                    (stack, base) = (frame, saved_base);
                    // This frame was interrupted, not in a call, so its rule is that of the very instruction.
                    address = interrupted;
                    if self.push(&mut found, interrupted) == Room::None {
                        break End::Whole;
                    }
                    continue;
                }
                Kind::Outermost => break End::Whole,
                Kind::Other => break End::NoRule(address),
            };
            let Some(return_address) = self.read(frame.wrapping_sub(8), stack) else { break End::Lost };
            match rule.kind {
                Kind::ThroughBase => {
                    let at = base.wrapping_add_signed(i64::from(rule.base) * 8);
                    let Some(saved) = self.read(at, stack) else { break End::Lost };
                    base = saved;
                }
                _ if rule.base != 0 => {
                    let at = frame.wrapping_add_signed(i64::from(rule.base) * 8);
                    let Some(saved) = self.read(at, stack) else { break End::Lost };
                    base = saved;
                }
                _ => {}
            }
            stack = frame;
            if return_address == 0 {
                break End::Whole;
            }
            if self.push(&mut found, return_address) == Room::None {
                break End::Whole;
            }
            // The call is before the address it returns to, which may belong to another function already.
            address = return_address - 1;
        };
        (found, end)
    }

    /// Reads a word of the stack at or above `from`, which is on it.
    #[inline]
    fn read(&self, at: u64, from: u64) -> Option<u64> {
        if at < from || at > self.high - 8 || !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: between the stack pointer of a function that has not returned and the end of this
        // thread's stack everything is mapped, and the address is a multiple of 8.
        Some(unsafe { std::ptr::with_exposed_provenance::<u64>(at as usize).read_volatile() })
    }

    #[inline]
    fn push(&mut self, found: &mut Found, address: u64) -> Room {
        let Some(place) = self.frames.get_mut(found.count) else { return Room::None };
        *place = address;
        found.count += 1;
        found.hash = mix(found.hash, address);
        if found.count == MAX_FRAMES { Room::None } else { Room::Left }
    }

    #[inline]
    fn rule(&mut self, address: u64) -> Rule {
        match self.rules.get(address) {
            Some(rule) => rule,
            None => self.find_rule(address),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_rule(&mut self, address: u64) -> Rule {
        if cfg!(not(target_arch = "x86_64")) {
            return Rule::OTHER;
        }
        let looked = look_up(address, &mut self.modules, &mut self.context);
        self.rules.learn(address, looked).0
    }

    /// Forgets everything if something was unloaded; returns whether.
    fn forget_unloaded(&mut self) -> bool {
        self.rules.forget_unloaded(Loads::now())
    }
}

#[derive(PartialEq, Eq)]
enum Room {
    Left,
    None,
}

/// Makes one number of what came before and what comes next.
#[inline]
pub(super) const fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

pub(super) fn hash_of(frames: &[u64]) -> u64 {
    frames.iter().fold(0, |hash, frame| mix(hash, *frame))
}

/// Where the calling thread's stack begins and ends.
fn stack_bounds() -> Option<(u64, u64)> {
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are filled in by the first call, read by the second where that succeeded,
    // and given back by the third.
    let found = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut bytes);
        libc::pthread_attr_destroy(&raw mut attributes);
        found
    };
    let start = start.addr() as u64;
    let end = start.checked_add(bytes as u64)?;
    (found == 0 && bytes >= 64).then_some((start, end))
}

thread_local! {
    /// The thread's walker, or one of the two marks below.
    static WALKER: Cell<*mut Walker> = const { Cell::new(std::ptr::null_mut()) };
    static GUARD: Guard = const { Guard };
}

/// Stands for a walker that is in use: by a walk that a signal handler or an allocator of ours interrupts.
const IN_USE: *mut Walker = std::ptr::without_provenance_mut(64);
/// Stands for the walker of a thread that ends.
const GONE: *mut Walker = std::ptr::without_provenance_mut(128);

/// Frees the thread's walker when the thread ends.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        let walker = WALKER.replace(GONE);
        if !walker.is_null() && walker != IN_USE && walker != GONE {
            // SAFETY: made by `Box::into_raw` in `walker_of`, and no longer in the cell.
            drop(unsafe { Box::from_raw(walker) });
        }
    }
}

/// Calls `with` with the thread's walker; none where it is in use or cannot be had.
#[inline]
pub(super) fn with_walker<T>(with: impl FnOnce(&mut Walker) -> T) -> Option<T> {
    let mut walker = WALKER.replace(IN_USE);
    if walker.is_null() || walker == IN_USE || walker == GONE {
        walker = make_walker(walker)?;
    }
    // SAFETY: a walker of this thread, of which the cell has no pointer while it is used here.
    let result = with(unsafe { &mut *walker });
    WALKER.set(walker);
    Some(result)
}

/// Makes a walker where there was none; `before` is what stood in the cell, which holds the mark of use.
#[cold]
fn make_walker(before: *mut Walker) -> Option<*mut Walker> {
    if before == IN_USE {
        return None;
    }
    // While a thread's destructors run there is nothing left that would free the walker later.
    if before != GONE
        && GUARD.try_with(|_| ()).is_ok()
        && let Some(walker) = Walker::new()
    {
        return Some(Box::into_raw(walker));
    }
    WALKER.set(GONE);
    None
}

//! Stacks are what the language runtime's own unwinder finds, whatever code is on them.
#![expect(unsafe_code, reason = "calls C, signal handlers and the runtime's unwinder")]

mod foreign;
mod recorded;

use std::ffi::c_void;
use std::hint::black_box;

use floodmark_stacks::{MAX_FRAMES, Stack, StackTable, capture};

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32,
        data: *mut c_void,
    ) -> i32;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// What the runtime's unwinder finds, this function included.
#[inline(never)]
fn frames_of_the_runtime() -> Vec<u64> {
    unsafe extern "C" fn each(frame: *mut c_void, data: *mut c_void) -> i32 {
        // SAFETY: `data` is the vector below, `frame` the unwinder's.
        unsafe { (*data.cast::<Vec<u64>>()).push(_Unwind_GetIP(frame) as u64) };
        0
    }
    let mut frames = Vec::<u64>::new();
    // SAFETY: the vector lives until the call returns.
    unsafe { _Unwind_Backtrace(each, (&raw mut frames).cast()) };
    if frames.last() == Some(&0) {
        frames.pop();
    }
    frames
}

/// Checks that both find the same callers; returns how many there are.
#[inline(never)]
fn agree() -> usize {
    let mut ours = [0; MAX_FRAMES];
    let count = capture(&mut ours);
    let theirs = frames_of_the_runtime();
    // This function was left at two different places, and theirs begins one further in.
    let (ours, theirs) = (&ours[..count], &theirs[1..]);
    assert_eq!(ours.len(), theirs.len().min(MAX_FRAMES));
    assert_eq!(ours[1..], theirs[1..ours.len()]);
    count
}

/// Names of the functions on the stack of the caller.
fn functions(stack: Option<Stack>) -> Vec<String> {
    let names = stack.expect("there is a stack").names();
    names.into_iter().map(|name| name.function.unwrap_or_default()).collect()
}

/// Checks that some functions are on a stack, innermost first, with others in between.
fn assert_in_order(found: &[String], expected: &[&str]) {
    let mut rest = found.iter();
    for name in expected {
        assert!(rest.any(|function| function.contains(name)), "{name} is not where it belongs in {found:#?}");
    }
}

#[inline(never)]
fn innermost() -> Option<Stack> {
    agree();
    black_box(Stack::capture())
}

#[inline(never)]
fn between(call: &dyn Fn() -> Option<Stack>) -> Option<Stack> {
    black_box(call())
}

#[inline(never)]
fn outermost(call: fn() -> Option<Stack>) -> Option<Stack> {
    black_box(between(&move || black_box(call())))
}

#[test]
fn nested_functions_closures_and_pointers_are_found_by_name() {
    let found = functions(outermost(innermost));
    assert!(found[0].ends_with("innermost"), "{found:#?}");
    assert_in_order(
        &found,
        &[
            "innermost",
            "outermost::{{closure}}",
            "between",
            "outermost",
            "nested_functions_closures_and_pointers_are_found_by_name",
        ],
    );
}

#[test]
fn threads_have_stacks_of_their_own() {
    let stack = std::thread::Builder::new().stack_size(256 << 10).spawn(|| outermost(innermost)).unwrap();
    let found = functions(stack.join().unwrap());
    assert_in_order(&found, &["innermost", "between", "outermost", "threads_have_stacks_of_their_own"]);
}

#[test]
fn the_same_stack_is_the_same_number() {
    let stacks: Vec<_> = (0..100).map(|_| outermost(innermost)).collect();
    assert!(stacks.iter().all(|stack| stack.is_some() && *stack == stacks[0]));
    let other = outermost(innermost);
    assert_ne!(other, stacks[0]);
    let stack = other.unwrap();
    assert_eq!(StackTable::shared().intern(stack.frames()), Some(stack));
    assert!(stack.number() as usize <= StackTable::shared().len());
}

#[inline(never)]
fn recurse(depth: usize, then: &mut dyn FnMut()) {
    if depth == 0 {
        then();
    } else {
        recurse(depth - 1, then);
    }
    black_box(depth);
}

#[test]
fn a_deep_recursion_is_cut() {
    let mut counts = Vec::new();
    recurse(1000, &mut || counts.push(agree()));
    assert_eq!(counts, [MAX_FRAMES]);
    let mut stack = None;
    recurse(1000, &mut || stack = Stack::capture());
    assert_eq!(stack.unwrap().frames().len(), MAX_FRAMES);
}

/// Eight functions with frames of different sizes.
#[inline(never)]
fn step<const WORDS: usize>(seed: u64, depth: u32) -> usize {
    let room = black_box([seed; WORDS]);
    let next = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let found = if depth == 0 {
        agree()
    } else {
        match next >> 61 {
            0 => step::<1>(next, depth - 1),
            1 => step::<3>(next, depth - 1),
            2 => step::<4>(next, depth - 1),
            3 => step::<17>(next, depth - 1),
            4 => step::<64>(next, depth - 1),
            5 => step::<500>(next, depth - 1),
            6 => step::<1111>(next, depth - 1),
            _ => step::<4000>(next, depth - 1),
        }
    };
    black_box(room[WORDS / 2]);
    found
}

#[test]
fn eight_threads_agree_with_the_runtime() {
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            scope.spawn(move || {
                for round in 0..2000 {
                    let seed = (thread << 32 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let depth = (seed >> 59) as u32;
                    assert!(step::<2>(seed, depth) > depth as usize);
                }
            });
        }
    });
}

#[test]
fn a_thread_that_ends_can_still_ask() {
    struct AtTheEnd;
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            // Found or not: nothing breaks.
            let mut frames = [0; MAX_FRAMES];
            assert!(capture(&mut frames) <= MAX_FRAMES);
            let _ = Stack::capture();
        }
    }
    thread_local!(static LAST: AtTheEnd = const { AtTheEnd });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            LAST.with(|_| ());
            assert!(agree() > 0);
        });
    });
}

const ON_MAIN_THREAD: &str = "FLOODMARK_TEST_ON_MAIN_THREAD";
const ALL_IS_WELL: i32 = 42;

/// Test runners have threads for tests; only what runs before them runs on the main one.
extern "C" fn before_the_runner() {
    if std::env::var_os(ON_MAIN_THREAD).is_none() {
        return;
    }
    recurse(20, &mut || assert!(agree() > 20));
    // SAFETY: ends the process before the runner begins.
    unsafe { libc::_exit(ALL_IS_WELL) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_THE_RUNNER: extern "C" fn() = before_the_runner;

#[test]
fn the_main_thread_has_stacks_too() {
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program).env(ON_MAIN_THREAD, "1").output().unwrap();
    assert_eq!(output.status.code(), Some(ALL_IS_WELL), "{}", String::from_utf8_lossy(&output.stderr));
}

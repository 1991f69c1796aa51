//! Code that is not Rust's: C without frame pointers, libraries that come and go, signal handlers,
//! stacks that are not the thread's.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use floodmark_stacks::{MAX_FRAMES, Stack, capture};

use super::{agree, assert_in_order, functions};

type Back = unsafe extern "C" fn(*mut c_void);

/// Functions that need different rules: no frame pointer, an array of variable size, an aligned stack.
const SOURCE: &str = r"
    typedef void back(void *);
    static volatile int after;
    __attribute__((noinline)) void fm_plain(back *call, void *data) {
        call(data);
        after++;
    }
    __attribute__((noinline)) void fm_variable(back *call, void *data, int count) {
        volatile char room[count];
        room[0] = 1;
        fm_plain(call, data);
        after += room[0];
    }
    __attribute__((noinline)) void fm_aligned(back *call, void *data, int count) {
        volatile __attribute__((aligned(64))) char room[256];
        room[count & 1] = 1;
        fm_variable(call, data, count);
        after += room[0];
    }
    __attribute__((noinline)) void fm_aligned_variable(back *call, void *data, int count) {
        volatile __attribute__((aligned(64))) char room[256];
        volatile char more[count];
        more[0] = room[count & 1] = 1;
        fm_aligned(call, data, count);
        after += room[0] + more[0];
    }
    void fm_enter(back *call, void *data, int count) {
        fm_aligned_variable(call, data, count);
        after++;
    }
";

/// Compiles a library that is called `name`.
fn compile(name: &str, source: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Tests may run at the same time, in processes of their own.
    let stem = format!("{name}-{}", std::process::id());
    let (from, to) = (directory.join(format!("{stem}.c")), directory.join(format!("lib{stem}.so")));
    std::fs::write(&from, source).expect("the folder for tests is there");
    let mut compiler = Command::new("cc");
    let compiler =
        compiler.args(["-O2", "-fomit-frame-pointer", "-fPIC", "-shared", "-o"]).arg(&to).arg(&from);
    let output = compiler.output().expect("a C compiler is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(from).expect("it was just written");
    to
}

/// A library, loaded as long as this lives.
struct Library {
    handle: *mut c_void,
    path: PathBuf,
}

impl Library {
    fn open(path: PathBuf) -> Self {
        let name = CString::new(path.as_os_str().as_bytes()).expect("paths have no zeros");
        // SAFETY: the name is a C string, and loading our libraries runs nothing.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Self { handle, path }
    }

    /// Has the library call `call` through all of its functions.
    fn call(&self, mut call: &mut dyn FnMut()) {
        unsafe extern "C" fn back(data: *mut c_void) {
            // SAFETY: the closure below, passed through.
            unsafe { (*data.cast::<&mut dyn FnMut()>())() };
        }
        // SAFETY: the library has such a function.
        let enter: unsafe extern "C" fn(Back, *mut c_void, c_int) =
            unsafe { std::mem::transmute(libc::dlsym(self.handle, c"fm_enter".as_ptr())) };
        // SAFETY: passes the closure through, which lives until the call returns.
        unsafe { enter(back, (&raw mut call).cast(), 77) };
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: nothing of the library is running or kept.
        unsafe { libc::dlclose(self.handle) };
        std::fs::remove_file(&self.path).expect("it was compiled here");
    }
}

#[test]
fn c_without_frame_pointers_is_found_in_a_library_that_was_loaded_later() {
    assert!(agree() > 0, "the modules are known before the library is there");
    let library = Library::open(compile("rules", SOURCE));
    let mut stack = None;
    library.call(&mut || {
        agree();
        stack = Stack::capture();
    });
    let found = functions(stack);
    assert_in_order(
        &found,
        &[
            "fm_plain",
            "fm_variable",
            "fm_aligned",
            "fm_aligned_variable",
            "fm_enter",
            "Library::call",
            "c_without_frame_pointers_is_found_in_a_library_that_was_loaded_later",
        ],
    );
    let names = stack.unwrap().names();
    let own = names.iter().find(|name| name.function.as_deref() == Some("fm_plain")).unwrap();
    assert_eq!(**own.module.as_ref().unwrap(), library.path);
}

#[test]
fn a_library_in_the_place_of_another_is_not_taken_for_it() {
    let mut places = Vec::new();
    // The same code with frames of other sizes: rules of the one are wrong for the other.
    for words in [1, 40, 3, 200] {
        let source = format!(
            "void fm_enter(void (*call)(void *), void *data, int count) {{
                 volatile long room[{words}];
                 room[0] = count;
                 call(data);
                 room[0]++;
             }}"
        );
        let library = Library::open(compile("replaced", &source));
        library.call(&mut || {
            agree();
            places.push(Stack::capture().unwrap());
        });
    }
    assert_eq!(places.len(), 4);
}

thread_local! {
    /// How many frames were found last.
    static FOUND: Cell<usize> = const { Cell::new(usize::MAX) };
}

extern "C" fn on_signal(_: c_int) {
    let mut frames = [0; MAX_FRAMES];
    FOUND.set(capture(&mut frames));
}

extern "C" fn on_signal_agreeing(_: c_int) {
    FOUND.set(agree());
}

fn handle(signal: c_int, handler: extern "C" fn(c_int), flags: c_int) {
    // SAFETY: zeros are a valid action, which is then filled in; the handler is a function.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_signal_handler_on_a_stack_of_its_own_finds_nothing_and_breaks_nothing() {
    let mut room = vec![0_u8; 64 << 10];
    let stack = libc::stack_t { ss_sp: room.as_mut_ptr().cast(), ss_flags: 0, ss_size: room.len() };
    let mut before = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: the room outlives its use; the stack from before is put back.
    unsafe { assert_eq!(libc::sigaltstack(&raw const stack, &raw mut before), 0) };
    handle(libc::SIGUSR1, on_signal, libc::SA_ONSTACK);
    // Before the thread has ever asked, and after.
    for _ in 0..2 {
        FOUND.set(usize::MAX);
        // SAFETY: has the handler run in this thread.
        unsafe { libc::raise(libc::SIGUSR1) };
        assert_eq!(FOUND.get(), 0);
        assert!(agree() > 0);
    }
    // SAFETY: as it was.
    unsafe { libc::sigaltstack(&raw const before, std::ptr::null_mut()) };
}

#[test]
fn a_signal_handler_on_the_threads_stack_finds_what_was_interrupted() {
    handle(libc::SIGUSR2, on_signal_agreeing, 0);
    let before = agree();
    // SAFETY: has the handler run in this thread.
    unsafe { libc::raise(libc::SIGUSR2) };
    assert!(FOUND.get() > before);
}

#[test]
fn a_coroutine_finds_nothing_and_breaks_nothing() {
    extern "C" fn run() {
        let mut frames = [0; MAX_FRAMES];
        FOUND.set(capture(&mut frames));
    }
    let mut room = vec![0_u8; 256 << 10];
    assert!(agree() > 0);
    // SAFETY: contexts are filled in before they are used; the room outlives the coroutine, which
    // comes back here when it ends.
    unsafe {
        let (mut here, mut there): (libc::ucontext_t, libc::ucontext_t) = std::mem::zeroed();
        assert_eq!(libc::getcontext(&raw mut there), 0);
        there.uc_stack.ss_sp = room.as_mut_ptr().cast();
        there.uc_stack.ss_size = room.len();
        there.uc_link = &raw mut here;
        libc::makecontext(&raw mut there, run, 0);
        assert_eq!(libc::swapcontext(&raw mut here, &raw const there), 0);
    }
    assert_eq!(FOUND.get(), 0);
    assert!(agree() > 0);
}

#[test]
fn exported_functions_have_the_name_of_their_file() {
    unsafe extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        // Two elements are compared once.
        *STACK.lock().unwrap() = Stack::capture();
        agree();
        0
    }
    static STACK: std::sync::Mutex<Option<Stack>> = std::sync::Mutex::new(None);
    let mut elements: [c_char; 2] = [2, 1];
    // SAFETY: two elements of one byte.
    unsafe { libc::qsort(elements.as_mut_ptr().cast(), 2, 1, Some(compare)) };
    let names = STACK.lock().unwrap().unwrap().names();
    let library = |name: &floodmark_stacks::FrameName| {
        name.module.as_ref().is_some_and(|module| module.to_string_lossy().contains("libc.so"))
    };
    let sorting = names.iter().find(|name| library(name)).unwrap();
    assert!(sorting.to_string().contains(" from libc.so.6+0x"), "{sorting}");
}

//! The stand-in for the CUDA driver, built by the system's C compiler for every test that wants one.
#![expect(unsafe_code, reason = "asks the stand-in for its counts")]

use std::ffi::{CString, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use floodmark_resource::{AllocError, Cuda, CudaDevice};

/// What the stand-in counts; its own numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    LiveBytes,
    Streams,
    Events,
    Waits,
    Pools,
    Retained,
    Prefetches,
    Launches,
    /// What was last said about when a pool of the driver gives memory back.
    Threshold,
    /// Live bytes of device 1.
    SecondBytes,
}

/// A stand-in of its own: nothing is shared with those of other tests.
pub(crate) struct Stub {
    path: PathBuf,
}

impl Stub {
    /// Builds one with the switches that `stub_cuda.c` explains.
    pub(crate) fn build(switches: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stub_cuda.{}.{number}.so", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stub_cuda.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC"]);
        compiler.args(switches.iter().map(|switch| format!("-D{switch}")));
        let status = compiler.arg(source).arg("-o").arg(&path).status();
        assert!(status.expect("a C compiler, cc").success(), "cc failed");
        Self { path }
    }

    pub(crate) fn open(&self) -> Result<Cuda, AllocError> {
        Cuda::open_at(&self.path)
    }

    /// Its first device.
    pub(crate) fn device(&self) -> CudaDevice {
        self.open().and_then(|cuda| cuda.device(0)).expect("a device")
    }

    /// What it has counted.
    pub(crate) fn count(&self, what: Count) -> i64 {
        let path = CString::new(self.path.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: the library is loaded already and stays so, and has this function.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            let count = libc::dlsym(library, c"stub_count".as_ptr());
            assert!(!count.is_null());
            std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_long>(count)(what as c_int)
        }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

//! Callbacks of CUPTI, NVIDIA's library for profilers, which is loaded at run time.
//!
//! Only callbacks are used: they come on the thread that calls, with the arguments of the function, before and after it.
//! Activity records would come later, in memory that a kill loses. Layouts are those of CUPTI 11.8 to 13.4.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;

use super::calls::{CALLS, index_of};
use super::events::{Seen, after, before, tear_down};
use super::{find, statics};
use crate::capture::Caller;
use crate::entry::with_caller;

/// Domains of callbacks.
const DRIVER: u32 = 1;
const RESOURCE: u32 = 3;
/// Of resources: a context is about to be destroyed.
const CONTEXT_ENDS: u32 = 2;
/// Of resources: a module was loaded, or is about to be unloaded.
const MODULE_LOADED: u32 = 6;
const MODULE_ENDS: u32 = 7;
/// Another tool has subscribed.
const TAKEN: u32 = 39;
/// Most bytes of the name of another tool.
const NAME_BYTES: usize = 256;

type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void) -> *mut c_void;
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;
type SubscribeNamed =
    unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void, *mut SubscriberParams) -> u32;
type Enable = unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> u32;
type Version = unsafe extern "C" fn(*mut u32) -> u32;

/// What CUPTI 13 is told about a subscriber, and tells about another one.
#[repr(C)]
struct SubscriberParams {
    bytes: usize,
    name: *const c_char,
    other_name: *mut c_char,
    other_bytes: usize,
}

/// What CUPTI says at a call of the driver.
#[repr(C)]
struct CallbackData {
    site: u32,
    function_name: *const c_char,
    arguments: *const u64,
    result: *const i32,
    symbol_name: *const c_char,
    context: u64,
}

/// What CUPTI says about a resource.
#[repr(C)]
struct ResourceData {
    context: u64,
    handle: u64,
    module: *const ModuleData,
}

/// What CUPTI says about a module.
#[repr(C)]
struct ModuleData {
    number: u32,
    bytes: usize,
    file: *const u8,
}

const _: () = assert!(std::mem::offset_of!(ModuleData, file) == 16);
const _: () = assert!(std::mem::offset_of!(CallbackData, arguments) == 16);
const _: () = assert!(std::mem::offset_of!(CallbackData, context) == 40);

/// The sites of a call.
const ENTERED: u32 = 0;
const LEFT: u32 = 1;

/// A subscription that goes on.
pub(super) struct Subscribed {
    pub(super) version: u32,
    pub(super) file: String,
    /// Functions that this version does not know.
    pub(super) missing: u32,
}

/// Why there is no subscription.
pub(super) enum Refusal {
    /// No CUPTI was found.
    Absent,
    /// Another tool has it; its name, if it gives one.
    Taken(String),
    /// It was found and does not work.
    Failed { result: u32, file: String },
}

/// Subscribes to the functions of the list, with the first CUPTI that works.
pub(super) fn subscribe(named: Option<&Path>) -> Result<Subscribed, Refusal> {
    let mut refusal = Refusal::Absent;
    for file in find::candidates(named) {
        let Ok(path) = CString::new(file.as_os_str().as_encoded_bytes()) else { continue };
        // SAFETY: a C string. CUPTI is made to be loaded by tools at this point.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            continue;
        }
        match subscribe_with(library, &file.to_string_lossy()) {
            Ok(subscribed) => return Ok(subscribed),
            // Another copy of the library would be refused as well.
            Err(Refusal::Taken(by)) => return Err(Refusal::Taken(by)),
            Err(other) => refusal = other,
        }
    }
    Err(refusal)
}

/// Looks a function up; none if this version does not have it.
fn function(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: an open library and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn subscribe_with(library: *mut c_void, file: &str) -> Result<Subscribed, Refusal> {
    let failed = |result| Refusal::Failed { result, file: file.to_owned() };
    let need = |name| function(library, name).ok_or_else(|| failed(0));
    // SAFETY: functions of these names have these types in all versions of CUPTI.
    let (subscribe, enable) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Subscribe>(need(c"cuptiSubscribe")?),
            std::mem::transmute::<*mut c_void, Enable>(need(c"cuptiEnableCallback")?),
        )
    };
    let mut subscriber = std::ptr::null_mut();
    // SAFETY: a valid place; the callback stays loaded, and its state is in statics.
    match unsafe { subscribe(&raw mut subscriber, called, std::ptr::null_mut()) } {
        0 => {}
        TAKEN => return Err(Refusal::Taken(name_of_other(library))),
        result => return Err(failed(result)),
    }
    // SAFETY: the subscriber of just now; unknown numbers are refused with an error.
    let is_enabled = |domain, number| unsafe { enable(1, subscriber, domain, number) } == 0;
    let missing = CALLS.iter().filter(|call| !is_enabled(DRIVER, call.cbid)).count();
    if missing == CALLS.len() {
        return Err(failed(0));
    }
    for number in [CONTEXT_ENDS, MODULE_LOADED, MODULE_ENDS] {
        is_enabled(RESOURCE, number);
    }
    let mut version = 0;
    if let Some(found) = function(library, c"cuptiGetVersion") {
        // SAFETY: a function of this type; the place is valid.
        unsafe { std::mem::transmute::<*mut c_void, Version>(found)(&raw mut version) };
    }
    Ok(Subscribed { version, file: file.to_owned(), missing: missing as u32 })
}

/// The name of the tool that has subscribed, which CUPTI 13 tells.
fn name_of_other(library: *mut c_void) -> String {
    let Some(found) = function(library, c"cuptiSubscribe_v2") else { return String::new() };
    let mut name = [0_u8; NAME_BYTES];
    let mut params = SubscriberParams {
        bytes: size_of::<SubscriberParams>(),
        name: c"floodmark".as_ptr(),
        other_name: name.as_mut_ptr().cast(),
        other_bytes: name.len(),
    };
    let mut subscriber = std::ptr::null_mut();
    // SAFETY: a function of this type since CUPTI 13.0; all places are valid, and it says how long they are. It fails, as
    // the first try did; if it should not, the callback is never enabled.
    unsafe {
        let subscribe = std::mem::transmute::<*mut c_void, SubscribeNamed>(found);
        subscribe(&raw mut subscriber, called, std::ptr::null_mut(), &raw mut params);
    }
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    name.strip_prefix("CUPTI for ").map_or_else(|| name.clone(), ToOwned::to_owned)
}

with_caller!(called(user: *mut c_void, domain: u32, number: u32, data: *const c_void) -> *mut c_void, "r8", "r9", called_from);

/// Takes a callback. It returns nothing that CUPTI reads; the type is what the entry code needs.
unsafe extern "C" fn called_from(
    _user: *mut c_void,
    domain: u32,
    number: u32,
    data: *const c_void,
    stack: u64,
    base: u64,
) -> *mut c_void {
    if !data.is_null() {
        match domain {
            // SAFETY: CUPTI gives this structure to callbacks of this domain.
            DRIVER => unsafe { driver_called(number, &*data.cast(), Caller { stack, base }) },
            // SAFETY: the first word of what is given to callbacks of this domain is the context.
            RESOURCE if number == CONTEXT_ENDS => tear_down(unsafe { data.cast::<u64>().read() }),
            // SAFETY: CUPTI gives this structure to callbacks about resources.
            RESOURCE => module_called(number, unsafe { &*data.cast::<ResourceData>() }),
            _ => {}
        }
    }
    std::ptr::null_mut()
}

fn module_called(number: u32, data: &ResourceData) {
    if data.module.is_null() || !matches!(number, MODULE_LOADED | MODULE_ENDS) {
        return;
    }
    // SAFETY: not null, so CUPTI describes the module there.
    let module = unsafe { &*data.module };
    if number == MODULE_ENDS {
        statics::unloading(data.context, module.number);
    } else if !module.file.is_null() && isize::try_from(module.bytes).is_ok() {
        // SAFETY: CUPTI says that the file has so many bytes there while the callback lasts.
        statics::loaded(data.context, module.number, unsafe {
            std::slice::from_raw_parts(module.file, module.bytes)
        });
    }
}

#[inline]
fn driver_called(number: u32, data: &CallbackData, caller: Caller) {
    let Some(index) = index_of(number).filter(|_| !data.arguments.is_null()) else { return };
    let seen = Seen { index, arguments: data.arguments, context: Some(data.context) };
    match data.site {
        ENTERED => before(&seen),
        LEFT if !data.result.is_null() => {
            // SAFETY: not null, so it is the function's result.
            after(&seen, unsafe { data.result.read() }, caller);
        }
        _ => {}
    }
}

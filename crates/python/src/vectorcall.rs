//! Calls of classes without the tuple and dictionary that `tp_new` needs: 50 instead of 190 ns.
#![expect(unsafe_code, reason = "takes the arguments as Python passes them")]

use std::marker::PhantomData;

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A class that Python can call fast.
pub(crate) trait FastCall: PyTypeInfo {
    /// Makes an object, as `#[new]` does.
    fn call(arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>>;
}

/// Has Python make objects of the class itself by [`FastCall::call`]. Subclasses are called as before.
pub(crate) fn enable<T: FastCall>(py: Python<'_>) {
    let class = py.get_type::<T>();
    // SAFETY: the class lives as long as the interpreter, and subclasses do not inherit the function.
    unsafe { (*class.as_type_ptr()).tp_vectorcall = Some(vectorcall::<T>) };
}

unsafe extern "C" fn vectorcall<T: FastCall>(
    _class: *mut ffi::PyObject,
    values: *const *mut ffi::PyObject,
    count_and_flags: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls this with the interpreter attached.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: no more than arithmetic; `names` is a tuple of strings or null.
    let (positional, named) = unsafe {
        let named = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) as usize };
        (ffi::PyVectorcall_NARGS(count_and_flags) as usize, named)
    };
    let arguments = Arguments { py, values, positional, names, named, call: PhantomData };
    match T::call(&arguments) {
        Ok(made) => made.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// Arguments of a call: the positional ones, then the values of the names.
pub(crate) struct Arguments<'a, 'py> {
    pub(crate) py: Python<'py>,
    values: *const *mut ffi::PyObject,
    positional: usize,
    names: *mut ffi::PyObject,
    named: usize,
    /// The values live as long as the call.
    call: PhantomData<&'a ()>,
}

impl<'a, 'py> Arguments<'a, 'py> {
    /// The value of each of `function`'s parameters; those after the first `positional` ones can only be given by
    /// name. `parameters` gives their names, and is called only when a name was used.
    pub(crate) fn parse<const N: usize>(
        &self,
        function: &str,
        positional: usize,
        parameters: impl FnOnce() -> [&'a Bound<'py, PyString>; N],
    ) -> PyResult<[Option<&'a Bound<'py, PyAny>>; N]> {
        if self.positional > positional {
            return Err(PyTypeError::new_err(format!(
                "{function} takes at most {positional} positional argument{}, {} were given",
                if positional == 1 { "" } else { "s" },
                self.positional
            )));
        }
        let mut found = [None; N];
        for (at, slot) in found.iter_mut().enumerate().take(self.positional) {
            *slot = Some(self.value(at));
        }
        if self.named == 0 {
            return Ok(found);
        }
        let parameters = parameters();
        for at in 0..self.named {
            // SAFETY: there are as many names, which live as long as the call.
            let name = unsafe {
                let name = ffi::PyTuple_GET_ITEM(self.names, at as ffi::Py_ssize_t);
                Bound::from_borrowed_ptr(self.py, name)
            };
            // Names in source code are interned, so comparing addresses finds nearly all.
            let mut place = parameters.iter().position(|known| name.is(*known));
            if place.is_none() {
                for (at, known) in parameters.iter().enumerate() {
                    if name.eq(*known)? {
                        place = Some(at);
                    }
                }
            }
            let Some(place) = place else {
                return Err(PyTypeError::new_err(format!(
                    "{function} got an unexpected keyword argument {}",
                    name.repr()?
                )));
            };
            if found[place].replace(self.value(self.positional + at)).is_some() {
                return Err(PyTypeError::new_err(format!(
                    "{function} got multiple values for argument {}",
                    name.repr()?
                )));
            }
        }
        Ok(found)
    }

    fn value(&self, at: usize) -> &'a Bound<'py, PyAny> {
        // SAFETY: there are more arguments than `at`, each a reference that lives as long as the call.
        unsafe { Bound::ref_from_ptr(self.py, &*self.values.add(at)) }
    }
}

/// The value of a parameter that has no default.
pub(crate) fn required<'a, 'py>(
    function: &str,
    name: &str,
    value: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<&'a Bound<'py, PyAny>> {
    value.ok_or_else(|| PyTypeError::new_err(format!("{function} needs the argument '{name}'")))
}

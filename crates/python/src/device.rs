//! GPUs, or the host where there is none.

use std::fs;
use std::sync::OnceLock;

use floodmark_resource::{Cuda, CudaDevice};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::raise;

/// Selects what devices are: `host` never looks for GPUs, `cuda` fails without them.
const VARIABLE: &str = "FLOODMARK_DEVICE";

/// The driver, if this process uses GPUs. It is loaded by the first call.
pub(crate) fn cuda() -> PyResult<Option<&'static Cuda>> {
    static CUDA: OnceLock<Result<Option<Cuda>, String>> = OnceLock::new();
    let opened = CUDA.get_or_init(|| open(&std::env::var(VARIABLE).unwrap_or_default()));
    opened.as_ref().map(Option::as_ref).map_err(|message| PyRuntimeError::new_err(message.clone()))
}

fn open(wanted: &str) -> Result<Option<Cuda>, String> {
    if wanted == "host" {
        return Ok(None);
    }
    if !["", "cuda"].contains(&wanted) {
        return Err(format!("{VARIABLE}={wanted}: use host or cuda"));
    }
    match Cuda::open() {
        Ok(cuda) if cuda.device_count().is_ok_and(|count| count > 0) => Ok(Some(cuda)),
        _ if wanted.is_empty() => Ok(None),
        Ok(_) => Err(format!("{VARIABLE}=cuda, but there is no GPU")),
        Err(error) => Err(format!("{VARIABLE}=cuda, but {error}")),
    }
}

/// The GPU with this number; none where the host stands for all devices.
pub(crate) fn gpu(device: i32) -> PyResult<Option<CudaDevice>> {
    match cuda()? {
        Some(cuda) => cuda.device(device).map(Some).map_err(|error| raise(&error)),
        None if device == 0 => Ok(None),
        None => Err(PyValueError::new_err(format!(
            "there is no device {device}, only device 0, which is the host's memory"
        ))),
    }
}

/// Whether devices are GPUs.
#[pyfunction]
pub(crate) fn has_cuda() -> PyResult<bool> {
    Ok(cuda()?.is_some())
}

/// Index, "cuda" or "host", name, bytes and UUID of a device.
type DeviceRow = (i32, &'static str, String, u64, String);

/// What each device is: (index, "cuda" or "host", name, bytes, UUID).
#[pyfunction]
pub(crate) fn devices() -> PyResult<Vec<DeviceRow>> {
    let Some(cuda) = cuda()? else {
        let (_, total_bytes) = host_memory();
        return Ok(vec![(0, "host", "host memory".to_owned(), total_bytes, String::new())]);
    };
    let count = cuda.device_count().map_err(|error| raise(&error))?;
    (0..count)
        .map(|index| {
            let device = cuda.device(index).map_err(|error| raise(&error))?;
            Ok((index, "cuda", device.name().to_owned(), device.total_bytes(), device.uuid()))
        })
        .collect()
}

/// Free and total bytes of a device.
#[pyfunction]
pub(crate) fn available_memory(device: i32) -> PyResult<(u64, u64)> {
    let Some(gpu) = gpu(device)? else { return Ok(host_memory()) };
    let info = gpu.memory_info().map_err(|error| raise(&error))?;
    Ok((info.free_bytes, info.total_bytes))
}

/// Available and total bytes of the host, as far as the control group of this process may use them.
pub(crate) fn host_memory() -> (u64, u64) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let total = field("MemTotal:").unwrap_or(1 << 46);
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    let total = total.min(limit);
    (field("MemAvailable:").unwrap_or(total).min(total), total)
}

//! Options of the recording of CUDA memory from inside.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use floodmark_record::{GpuOptions, GpuProps, GpuWay, MAX_DEPTH};

use crate::env::{EnvVars, value};
use crate::error::hinted;

/// What to record of CUDA memory.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "CUDA")]
pub(crate) struct GpuArgs {
    /// Record every CUDA allocation of all processes from inside, with stacks: what programs and libraries get from the
    /// driver
    ///
    /// The driver loads a library when CUDA is initialized; calls are seen through CUPTI, or by interposed functions where
    /// another tool holds CUPTI or there is none. Programs without CUDA are not concerned. Tensors of PyTorch are
    /// recorded with --gpu=all. What other frameworks do with memory that they hold is recorded by the Python package: see
    /// docs/gpu.md
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "driver")]
    pub(crate) gpu: Option<GpuLevel>,
    /// Record CUDA allocations without their stacks
    #[arg(long, requires = "gpu")]
    no_gpu_stacks: bool,
    /// How calls of the driver are seen: through CUPTI, by interposed functions, or by the first of them that works; with
    /// --gpu=all interposed functions are tried first, which leaves CUPTI to torch.profiler
    #[arg(long, value_name = "WAY", requires = "gpu", default_value = "auto")]
    gpu_way: WayChoice,
    /// File of libcupti to use [default: that of the program, its Python packages, `CUDA_HOME` or the system]
    #[arg(long, value_name = "FILE", requires = "gpu")]
    cupti: Option<String>,
    /// File of the library to load, in place of the embedded one [env: `FLOODMARK_HEAP_LIBRARY`]
    #[arg(long, value_name = "FILE", requires = "gpu", conflicts_with = "heap_library", hide = true)]
    gpu_library: Option<PathBuf>,
}

/// At which level CUDA memory is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GpuLevel {
    /// What is allocated from the driver
    Driver,
    /// What PyTorch's cache hands out, such as tensors
    Framework,
    /// Both; what PyTorch's cache holds is of kind reserved
    All,
}

/// How calls of the driver are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WayChoice {
    /// The first that works: through CUPTI, or by interposed functions; with --gpu=all the other way round
    #[default]
    Auto,
    /// By callbacks of CUPTI alone
    Cupti,
    /// By interposed functions
    Preload,
}

impl GpuArgs {
    /// What to record, if anything.
    pub(crate) fn props(&self) -> Result<Option<GpuProps>> {
        let Some(level) = self.gpu else { return Ok(None) };
        if level == GpuLevel::All && self.no_gpu_stacks {
            let message = "--gpu=all knows what PyTorch's cache holds by the stacks of allocations";
            return Err(hinted(message, "leave --no-gpu-stacks out, or use --gpu=driver or --gpu=framework"));
        }
        let options = GpuOptions {
            level: match level {
                GpuLevel::Driver => floodmark_record::GpuLevel::Driver,
                GpuLevel::Framework => floodmark_record::GpuLevel::Framework,
                GpuLevel::All => floodmark_record::GpuLevel::All,
            },
            way: match self.gpu_way {
                WayChoice::Auto => GpuWay::Auto,
                WayChoice::Cupti => GpuWay::Cupti,
                WayChoice::Preload => GpuWay::Preload,
            },
            cupti: self.cupti.clone(),
            stacks: !self.no_gpu_stacks,
            depth: MAX_DEPTH,
            ..GpuOptions::default()
        };
        let library = self.gpu_library.clone();
        let library = library.or_else(|| value(EnvVars::HEAP_LIBRARY).map(PathBuf::from));
        Ok(Some(GpuProps { options, library }))
    }
}

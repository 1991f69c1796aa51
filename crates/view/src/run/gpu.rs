//! What was recorded of the CUDA memory of a run, in sentences.

use floodmark_analyze::GpuSummary;
use floodmark_event::units::{format_bytes, format_count};

use super::after;
use crate::figures::counted;

/// How high the CUDA memory of a run rose.
pub(super) fn gpu_peak(gpu: &GpuSummary, start_ns: Option<i64>) -> String {
    if gpu.ways.is_empty() {
        return if gpu.remarks.is_empty() { "no process used it" } else { "nothing was recorded" }.to_owned();
    }
    if gpu.allocations == 0 {
        return "no device memory was allocated".to_owned();
    }
    format!(
        "{} of device memory at most{}, {} in {} at the end",
        format_bytes(gpu.peak_bytes),
        after(gpu.peak_time_ns, start_ns),
        format_bytes(gpu.live_bytes),
        counted(gpu.live_blocks, "block")
    )
}

/// What was recorded of the CUDA memory of a run; none if nothing was.
pub(super) fn gpu_events(gpu: &GpuSummary) -> Option<String> {
    if gpu.ways.is_empty() {
        return None;
    }
    let way = |way: &String| match way.as_str() {
        "cupti" => "callbacks of CUPTI".to_owned(),
        "preload" => "interposed functions".to_owned(),
        "torch" => "reports of PyTorch's cache".to_owned(),
        other => other.to_owned(),
    };
    let ways: Vec<String> = gpu.ways.iter().map(way).collect();
    let mut parts = vec![counted(gpu.allocations, "allocation"), counted(gpu.frees, "free")];
    for other in &gpu.others {
        parts.push(format!("{} {}", format_count(other.allocations), other.kind.name()));
    }
    if gpu.failures > 0 {
        parts.push(format!("{} failed", format_count(gpu.failures)));
    }
    Some(format!("{}, by {}", parts.join(", "), ways.join(" and ")))
}

/// What was not recorded of the CUDA memory of a run, a sentence each.
pub(super) fn gpu_notes(gpu: &GpuSummary) -> impl Iterator<Item = String> {
    gpu.remarks.iter().cloned()
}

#[cfg(test)]
mod tests {
    use floodmark_analyze::{GpuKind, RunSummary};
    use floodmark_event::Kind;

    use super::*;
    use crate::layout::Layout;
    use crate::report::View as _;

    #[test]
    fn a_summary_says_how_cuda_memory_was_recorded() {
        let gpu = GpuSummary {
            ways: vec!["preload".into()],
            allocations: 7,
            frees: 2,
            failures: 1,
            peak_bytes: 3 << 30,
            live_bytes: 15 << 20,
            live_blocks: 5,
            others: vec![GpuKind { kind: Kind::Pinned, allocations: 4, live_bytes: 0 }],
            remarks: vec!["another tool holds CUPTI (Nsight Systems)".into()],
            ..GpuSummary::default()
        };
        let mut summary = RunSummary { gpu: Some(gpu), ..RunSummary::default() };
        let text = summary.body(&Layout::default());
        for line in [
            "  CUDA         3.00 GiB of device memory at most, 15.0 MiB in 5 blocks at the end\n",
            "  recorded     7 allocations, 2 frees, 4 pinned, 1 failed, by interposed functions\n",
            "note: another tool holds CUPTI (Nsight Systems)",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        summary.gpu = Some(GpuSummary::default());
        assert!(summary.body(&Layout::default()).contains("  CUDA         no process used it\n"));
    }
}

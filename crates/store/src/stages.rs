//! Where the CPU time of a sealing goes, for benchmarks: each thread counts for itself, if it was told to.

use std::cell::Cell;

/// A stage of sealing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealStage {
    /// Everything that is no other stage: listing files, the manifest, names.
    Other,
    /// Moving chunks from rings to files.
    Drain,
    /// Reading chunks and decoding their records.
    Decode,
    /// Putting the events of several threads in order.
    Merge,
    /// Finding the blocks that frees end.
    Match,
    /// Encoding columns.
    Encode,
    /// Compressing pages.
    Compress,
    /// Writing parts and making them durable.
    Write,
}

impl SealStage {
    /// All stages.
    pub const ALL: [Self; 8] = [
        Self::Drain,
        Self::Decode,
        Self::Merge,
        Self::Match,
        Self::Encode,
        Self::Compress,
        Self::Write,
        Self::Other,
    ];
}

/// CPU time of each stage, ns, in the order of [`SealStage::ALL`].
pub type SealCosts = [u64; SealStage::ALL.len()];

/// What a thread counts.
#[derive(Clone, Copy)]
struct Count {
    stage: SealStage,
    since_ns: u64,
    spent: [u64; SealStage::ALL.len()],
}

thread_local! {
    static COUNT: Cell<Option<Count>> = const { Cell::new(None) };
}

/// Starts to count the CPU time of sealings on this thread.
pub fn begin_costs() {
    let count = Count { stage: SealStage::Other, since_ns: thread_cpu_ns(), spent: Default::default() };
    COUNT.set(Some(count));
}

/// Ends counting and returns what was counted.
pub fn end_costs() -> SealCosts {
    switch(SealStage::Other);
    let spent = COUNT.take().map_or_else(SealCosts::default, |count| count.spent);
    SealStage::ALL.map(|stage| spent[stage as usize])
}

/// Runs `work` as part of a stage.
pub(crate) fn stage<T>(stage: SealStage, work: impl FnOnce() -> T) -> T {
    let Some(before) = switch(stage) else { return work() };
    let result = work();
    switch(before);
    result
}

/// Ends the present stage and returns it; `None` if nothing is counted.
fn switch(to: SealStage) -> Option<SealStage> {
    let mut count = COUNT.get()?;
    let now_ns = thread_cpu_ns();
    let before = count.stage;
    count.spent[before as usize] += now_ns.saturating_sub(count.since_ns);
    (count.stage, count.since_ns) = (to, now_ns);
    COUNT.set(Some(count));
    Some(before)
}

#[expect(unsafe_code, reason = "reads the thread's CPU clock")]
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result, and a clock that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

//! A process's part in a recording: its ring, its lanes, the names of its files.
//!
//! Invariants: a session is never freed, since any thread may be about to use it, but the memory behind its
//! ring and its definitions is released when it ends; what a lane calls when it runs out of room
//! allocates nothing, because it may run inside an allocator.
#![expect(unsafe_code, reason = "maps lanes and hands them to threads")]

use std::ffi::{CStr, CString};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::intern::{Interner, reserve};
use super::lane::{Lane, Surroundings};
use super::recorder::{RecordProps, StartError};
use super::ring::{
    self, CHUNK_BYTES, HEADER_BYTES, Identity, LossReason, Ring, SEGMENTS_BYTES, c_path, exceeds_file_limit,
    path_of,
};
use crate::abandoned::SHARED_MEMORY;
use crate::clock::Anchor;
use crate::protocol::OFF;

/// Threads that can record at the same time.
pub(super) const MAX_LANES: usize = 4096;

/// A process's part in a recording, from the first event to the end.
pub(crate) struct Session {
    pub(super) generation: u32,
    /// Generation of the session with which the recording began: that of the process, or of the one that
    /// it was forked from.
    pub(super) recording: u32,
    pub(super) ring: Ring,
    ring_path: CString,
    /// `segments/STEM.ring` in the trace: the ring itself or a link to it.
    link_path: CString,
    /// `segments/STEM`, what the names of this process's segments start with.
    stem: CString,
    pub(super) props: RecordProps,
    pub(super) interner: &'static Interner,
    pub(super) next_scope: AtomicU32,
    lane_count: AtomicU32,
    lanes: &'static [AtomicPtr<Lane>],
    definitions: AtomicBool,
    /// Set when the recording ends: definitions and lanes that are taken are written no more.
    has_ended: AtomicBool,
}

impl Surroundings for Session {
    fn generation(&self) -> u32 {
        if self.has_ended.load(Ordering::Relaxed) { OFF } else { self.generation }
    }

    fn ring(&self) -> &Ring {
        &self.ring
    }

    fn ring_path(&self) -> &CStr {
        &self.ring_path
    }

    fn may_grow(&self) -> bool {
        let lanes = self.lane_count.load(Ordering::Relaxed) as usize;
        let chunks = self.ring.header().chunks.load(Ordering::Relaxed) as usize;
        chunks.saturating_sub(lanes) < self.props.shared_memory_bytes / CHUNK_BYTES
    }

    fn with_segment_path(&self, lane: u32, number: u32, with: &mut dyn FnMut(&CStr)) {
        let mut path = PathText::default();
        path.push(self.stem.to_bytes());
        path.push(b".");
        path.number(lane);
        path.push(b".");
        path.number(number);
        path.push(b".seg");
        if let Some(path) = path.finish() {
            with(path);
        }
    }
}

/// A path put together without allocating.
///
/// Shorter than the longest path there can be, because the stack it is on may be a signal handler's.
struct PathText {
    bytes: [u8; 1024],
    len: usize,
}

impl Default for PathText {
    fn default() -> Self {
        Self { bytes: [0; 1024], len: 0 }
    }
}

impl PathText {
    fn push(&mut self, text: &[u8]) {
        let end = (self.len + text.len()).min(self.bytes.len());
        self.bytes[self.len..end].copy_from_slice(&text[..end - self.len]);
        self.len = end;
    }

    fn number(&mut self, number: u32) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.push(&[b'0' + (number % 10) as u8]);
    }

    /// The path, unless it was too long.
    fn finish(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

impl Session {
    /// Writes to lane 0, which holds definitions and is shared under a lock: they are rare.
    ///
    /// Returns whether it was written.
    pub(super) fn write_definition(&self, record: &[u8]) -> bool {
        while self.definitions.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: lane 0 is made with the session, and lanes are never freed.
        let lane = unsafe { &*self.lanes[0].load(Ordering::Acquire) };
        let written = lane.definition(record, self);
        self.definitions.store(false, Ordering::Release);
        written
    }

    /// Makes lanes refuse what is recorded through the session from now on. Takes effect at the next
    /// barrier, see [`Current::end`](crate::protocol::Current::end).
    pub(super) fn refuse_records(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// The lanes made so far.
    pub(super) fn made_lanes(&self) -> impl Iterator<Item = &'static Lane> {
        let made = (self.lane_count.load(Ordering::Acquire) as usize).min(MAX_LANES);
        // SAFETY: the pointers are null or to lanes, and those are never freed.
        self.lanes[..made].iter().filter_map(|lane| unsafe { lane.load(Ordering::Acquire).as_ref() })
    }

    /// Whether this is the session of this process and not one it inherited by a fork.
    ///
    /// Asking the kernel for the process's number as well would be a system call for every definition, and wrong in a
    /// child of `vfork`, which has its parent's memory and so its parent's session.
    pub(super) fn is_own(&self) -> bool {
        // Lanes of the parent read as zeros in a child.
        // SAFETY: lane 0 is made with the session, and lanes are never freed.
        let definitions = unsafe { &*self.lanes[0].load(Ordering::Acquire) };
        definitions.gate.generation.load(Ordering::Relaxed) == self.generation
    }

    /// Makes the session of a forked child, which goes on with the definitions it inherited.
    pub(super) fn for_child(&self, generation: u32) -> Result<Box<Self>, StartError> {
        Self::create(self.props.clone(), generation, self.recording, self.interner)
    }

    /// Takes a vacant lane or makes one.
    pub(super) fn lane(&self) -> Option<&'static Lane> {
        let thread = current_thread();
        // Lane 0 is that of definitions.
        for lane in self.made_lanes().skip(1) {
            if lane.gate.try_take() {
                lane.take(thread, self);
                return Some(lane);
            }
        }
        let more = |count: u32| ((count as usize) < MAX_LANES).then_some(count + 1);
        let taken = self.lane_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let page = taken.ok().and_then(|number| Some((number as usize, lane_page().ok()?)));
        let Some((number, lane)) = page else {
            self.ring.lose(LossReason::NoLane, 1);
            return None;
        };
        lane.initialize(number as u32, self.generation);
        lane.take(thread, self);
        self.lanes[number].store(std::ptr::from_ref(lane).cast_mut(), Ordering::Release);
        Some(lane)
    }
}

/// Maps a page for a lane that forked children see as zeros.
fn lane_page() -> io::Result<&'static Lane> {
    // SAFETY: a new anonymous mapping touches nothing of ours; it is a page and so large enough and
    // aligned for a Lane, for which all zeros are valid; it is never unmapped.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            // Without it a forked child would write into its parent's chunks.
            return Err(io::Error::last_os_error());
        }
        Ok(&*page.cast::<Lane>())
    }
}

/// Maps a table for the addresses of lanes, which takes memory as it fills.
fn lane_table() -> io::Result<&'static [AtomicPtr<Lane>]> {
    let table = reserve::<AtomicPtr<Lane>>(MAX_LANES).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: mapped for that many values just now and never unmapped; zeros are null pointers.
    Ok(unsafe { std::slice::from_raw_parts(table, MAX_LANES) })
}

fn current_thread() -> u64 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

pub(super) fn current_pid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getpid() as u32 }
}

impl Session {
    /// Makes the ring and everything around it.
    pub(super) fn create(
        props: RecordProps,
        generation: u32,
        recording: u32,
        interner: &'static Interner,
    ) -> Result<Box<Self>, StartError> {
        let segments = props.trace.join("segments");
        let error = |act, path: &Path| {
            let path = path.to_owned();
            move |source| StartError::Io { act, path, source }
        };
        std::fs::create_dir_all(&segments).map_err(error("creating", &segments))?;
        let segments = segments.canonicalize().map_err(error("opening", &segments))?;
        let stem = ring::stem();
        let link = segments.join(format!("{stem}.ring"));
        let identity =
            Identity { anchor: Anchor::now(), command: command(), segments: padded_path(&segments) };
        let (ring, ring_path) =
            create_ring(&props, &link, &stem, &identity).map_err(error("creating", &link))?;
        let c_string = |path: &Path| c_path(path).map_err(error("naming", path));
        let lanes = lane_table().map_err(error("recording into", &props.trace))?;
        let session = Box::new(Self {
            generation,
            recording,
            ring_path: c_string(&ring_path)?,
            link_path: c_string(&link)?,
            stem: c_string(&segments.join(&stem))?,
            ring,
            props,
            interner,
            next_scope: AtomicU32::new(1),
            lane_count: AtomicU32::new(1),
            lanes,
            definitions: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        let lane = lane_page().map_err(error("recording into", &session.props.trace))?;
        lane.initialize(0, generation);
        session.lanes[0].store(std::ptr::from_ref(lane).cast_mut(), Ordering::Release);
        Ok(session)
    }
}

/// Creates the ring in shared memory with a link to it in the trace, or in the trace itself.
fn create_ring(
    props: &RecordProps,
    link: &Path,
    stem: &str,
    identity: &Identity,
) -> io::Result<(Ring, PathBuf)> {
    let extra = props.shared_memory_bytes / CHUNK_BYTES;
    let shared = props.ring_directory.clone().unwrap_or_else(|| PathBuf::from(SHARED_MEMORY));
    // The host may change its directory.
    let shared = std::path::absolute(shared)?;
    let path = shared.join(format!("floodmark-{stem}.ring"));
    // The link comes first: a process killed in between leaves a link that leads nowhere, which the
    // next open deletes, and not a file in shared memory that nobody knows.
    std::os::unix::fs::symlink(&path, link)?;
    if let Ok(ring) = Ring::create(&c_path(&path)?, MAX_LANES + extra, identity) {
        return Ok((ring, path));
    }
    std::fs::remove_file(link)?;
    // No shared memory to be had: a file of the trace costs page faults and write-back, but works.
    Ring::create(&c_path(link)?, MAX_LANES + extra, identity).map(|ring| (ring, link.to_owned()))
}

/// A path padded with zeros; nothing but zeros if it does not fit.
fn padded_path(path: &Path) -> [u8; SEGMENTS_BYTES] {
    let mut padded = [0; SEGMENTS_BYTES];
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() < padded.len() {
        padded[..bytes.len()].copy_from_slice(bytes);
    }
    padded
}

/// The command line of this process, cut to what a header holds.
fn command() -> [u8; 512] {
    let mut command = [0; 512];
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = line.strip_suffix(&[0]).unwrap_or(&line);
    for (to, from) in command[..511].iter_mut().zip(words) {
        *to = if *from == 0 { b' ' } else { *from };
    }
    command
}

impl Session {
    /// Ends the session: its records are in the trace's directory afterwards, and its memory is released.
    pub(super) fn end(&self) {
        self.ring.header().closed.store(1, Ordering::Release);
        // If the disk is full the ring stays where it is and the link in the trace leads to it.
        if self.bring_home().is_ok() && self.ring_path != self.link_path {
            self.ring.discard();
        }
        self.interner.discard();
    }

    /// Replaces the link in the trace by a copy of the ring, and removes the ring.
    fn bring_home(&self) -> io::Result<()> {
        let (ring, link) = (path_of(&self.ring_path), path_of(&self.link_path));
        if ring == link {
            return Ok(());
        }
        let temporary = link.with_extension("ring.tmp");
        let copied = self.copy_to(&temporary).and_then(|()| std::fs::rename(&temporary, &link));
        if copied.is_err() {
            let _ = std::fs::remove_file(&temporary);
            return copied;
        }
        std::fs::remove_file(&ring)
    }

    fn copy_to(&self, path: &Path) -> io::Result<()> {
        let chunks = (self.ring.header().chunks.load(Ordering::Acquire) as usize).min(self.ring.capacity());
        let mut original = std::fs::File::open(std::ffi::OsStr::from_bytes(self.ring_path.to_bytes()))?;
        let backed = original.metadata()?.len() as usize;
        if exceeds_file_limit(backed as u64) {
            // Growing past it would end the host with a signal.
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let mut file = std::fs::File::create(path)?;
        let mut page = vec![0; HEADER_BYTES];
        io::Read::read_exact(&mut original, &mut page)?;
        file.write_all(&page)?;
        for index in 0..chunks {
            let at = HEADER_BYTES + index * CHUNK_BYTES;
            if at + CHUNK_BYTES > backed {
                break;
            }
            // SAFETY: backed by the file as just checked, and mapped.
            let (free, bytes) = unsafe {
                let chunk = self.ring.chunk(index);
                let free = (*chunk).is_free();
                (free, std::slice::from_raw_parts(chunk.cast::<u8>(), CHUNK_BYTES))
            };
            if !free {
                file.seek(io::SeekFrom::Start(at as u64))?;
                file.write_all(bytes)?;
            }
        }
        file.set_len(backed as u64)?;
        file.sync_data()
    }
}

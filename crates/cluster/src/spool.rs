//! A spool: everything an agent has sampled, on the disk of its node.
//!
//! | file | contents |
//! |---|---|
//! | `frames-POSITION` | the tail's own frames in a row, as they are sent (FORMAT.md, section 4.4): one file for every 8 MiB, named by the number of bytes before it, and each beginning with the process that its frames belong to |
//! | `node.flood/` | the tail of processes that record on the node: the agent, and programs that join |
//! | `lock` | locked by the agent that samples |
//! | `attached` | touched while a recorder is connected |
//! | `stop` | there once the agent was asked to end |
//! | `complete` | there once nothing more comes |
//! | `ready` | there once the agent samples, if it sends nothing |
//! | `about` | job, node, its name in traces if that is not the host's, and command, one in each line |
//! | `host` | name of the host, by which programs that record themselves find `node.flood` |
//!
//! The agent that samples and those that talk to the recorder share nothing but this directory, so a new connection can
//! go on with the spool of an agent that has lost its own. Files that the recorder has stored are deleted while the job
//! runs, all but the last 8 to 16 MiB, so a spool does not grow with its job.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Error, Result};

/// Variable that names the directory in which agents make their spools.
pub const SPOOL_VARIABLE: &str = "FLOODMARK_SPOOL";
/// The usual directory. It must be the same for every process of a node, so it is not that of `TMPDIR`, which
/// schedulers set anew for every job and delete at its end.
const USUAL_BASE: &str = "/tmp";

/// Bytes after which the next file of frames begins.
pub const FILE_BYTES: u64 = 8 << 20;
/// Bytes that are kept although the recorder has stored them: its host may fail before its disk has them.
const KEPT_BYTES: u64 = FILE_BYTES;
/// Beginning of the names of files of frames.
const FRAMES: &str = "frames-";
/// What a spool says of its clock where recorder and node are one machine.
pub(crate) const RECORDERS_CLOCK: &str = "recorder";

/// The directory of a spool.
#[derive(Clone, Debug)]
pub struct Spool {
    directory: PathBuf,
}

/// Holds the right to append to a spool.
#[derive(Debug)]
pub struct SpoolLock {
    _file: File,
}

/// Returns the directory in which this user's spools are, below `base`, or below the usual directory if it is empty.
pub fn spools(base: &str) -> PathBuf {
    let variable = std::env::var(SPOOL_VARIABLE).ok().filter(|path| !path.is_empty());
    let base = match (base, variable) {
        ("", Some(base)) => base,
        ("", None) => USUAL_BASE.to_owned(),
        (base, _) => base.to_owned(),
    };
    Path::new(&base).join(format!("floodmark-{}", own_user()))
}

#[expect(unsafe_code, reason = "geteuid is a C function")]
pub(crate) fn own_user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes a text that came from elsewhere the name of a file.
fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = text.chars().take(100).map(plain).collect();
    if name.is_empty() || name.starts_with('.') { format!("_{name}") } else { name }
}

impl Spool {
    /// Returns the spool of a job on this node, making its directory.
    ///
    /// # Errors
    /// If the directory cannot be made, or belongs to another user.
    pub fn open(base: &str, job: &str, host: &str) -> Result<Self> {
        let parent = spools(base);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&parent);
        made.map_err(Error::io(format!("creating {}", parent.display())))?;
        // A link, or a directory that others can write to, could lead elsewhere at the next step.
        let found =
            fs::symlink_metadata(&parent).map_err(Error::io(format!("reading {}", parent.display())))?;
        if !found.is_dir() || found.uid() != own_user() || found.mode() & 0o022 != 0 {
            return Err(Error::refused(
                format!("{} is no directory of yours that only you can write to", parent.display()),
                format!("set {SPOOL_VARIABLE} to a directory of your own"),
            ));
        }
        let Self { directory } = Self::named(&parent, job, host);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::Io { act: format!("creating {}", directory.display()), source: error })
            }
            _ => Ok(Self { directory }),
        }
    }

    /// Returns the spool of a job on a node below the directory of a user's spools; it need not be there.
    pub fn named(parent: &Path, job: &str, node: &str) -> Self {
        Self { directory: parent.join(format!("{}-{}", file_name(job), file_name(node))) }
    }

    /// Says that the agent samples.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn set_ready(&self) -> io::Result<()> {
        self.touch("ready")
    }

    /// Whether the agent samples.
    pub fn is_ready(&self) -> bool {
        self.directory.join("ready").exists()
    }

    /// Returns the spool in a directory that is there.
    pub fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Returns its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the trace in which processes of the node record.
    pub fn trace(&self) -> PathBuf {
        self.directory.join("node.flood")
    }

    /// Returns the path of the file of frames that begins at `position`.
    pub fn frames_at(&self, position: u64) -> PathBuf {
        self.directory.join(format!("{FRAMES}{position:020}"))
    }

    /// Returns the files of frames, each with the position at which it begins, in order.
    pub fn frames(&self) -> Vec<(u64, PathBuf)> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let position = |name: &str| name.strip_prefix(FRAMES)?.parse().ok();
        let mut files: Vec<(u64, PathBuf)> = entries
            .filter_map(|entry| Some((position(entry.file_name().to_str()?)?, entry.path())))
            .collect();
        files.sort();
        files
    }

    /// Returns the position of the first byte that is still there.
    pub fn start(&self) -> u64 {
        self.frames().first().map_or(0, |(position, _)| *position)
    }

    /// Deletes files of frames that the recorder has stored, but for the last ones.
    pub fn cut(&self, stored: u64) {
        let files = self.frames();
        for pair in files.windows(2) {
            if pair[1].0 + KEPT_BYTES <= stored {
                let _ = fs::remove_file(&pair[0].1);
            }
        }
    }

    /// Takes the right to append; none if another process has it.
    ///
    /// # Errors
    /// If the lock file cannot be made.
    pub fn lock(&self) -> Result<Option<SpoolLock>> {
        let path = self.directory.join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::io(format!("creating {}", path.display())))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(SpoolLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Error::io(format!("locking {}", path.display()))(error)),
        }
    }

    /// Returns the position behind the last byte.
    pub fn length(&self) -> u64 {
        let last = self.frames().pop();
        last.map_or(0, |(start, path)| start + fs::metadata(path).map_or(0, |found| found.len()))
    }

    fn touch(&self, name: &str) -> io::Result<()> {
        let file = File::options().create(true).append(true).open(self.directory.join(name))?;
        file.set_modified(SystemTime::now())
    }

    /// Says that a recorder is connected.
    pub fn touch_attached(&self) {
        // A full disk shows elsewhere.
        let _ = self.touch("attached");
    }

    /// Returns when a recorder was connected last.
    pub fn attached(&self) -> Option<SystemTime> {
        fs::metadata(self.directory.join("attached")).and_then(|found| found.modified()).ok()
    }

    /// Asks the agent that samples to end.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn ask_to_stop(&self) -> io::Result<()> {
        self.touch("stop")
    }

    /// Whether the agent was asked to end.
    pub fn is_stopping(&self) -> bool {
        self.directory.join("stop").exists()
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn set_complete(&self) -> io::Result<()> {
        self.touch("complete")
    }

    /// Whether nothing more comes.
    pub fn is_complete(&self) -> bool {
        self.directory.join("complete").exists()
    }

    /// Makes a spool that was complete ready for more.
    pub fn reopen(&self) {
        for name in ["stop", "complete", "ready"] {
            let _ = fs::remove_file(self.directory.join(name));
        }
    }

    /// Writes what the spool is about, and the name of its host.
    pub fn describe(&self, text: &str, host: &str) {
        for (name, text) in [("about", text), ("host", host)] {
            let path = self.directory.join(name);
            let _ = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
        }
    }

    /// Returns what the spool is about.
    pub fn about(&self) -> String {
        fs::read_to_string(self.directory.join("about")).unwrap_or_default()
    }

    /// Returns the id of the job whose agent made the spool; empty if it is not known.
    pub fn job(&self) -> String {
        self.said("job: ").unwrap_or_default()
    }

    /// Returns the name that traces have for the node, where that is not the host's.
    pub fn node_name(&self) -> Option<String> {
        self.said("name: ")
    }

    /// Whether the node has the clock of the recorder's host, because both are one machine.
    pub fn has_recorders_clock(&self) -> bool {
        self.said("clock: ").is_some_and(|clock| clock == RECORDERS_CLOCK)
    }

    fn said(&self, what: &str) -> Option<String> {
        self.about().lines().find_map(|line| line.strip_prefix(what).map(str::to_owned))
    }

    /// Deletes the spool.
    pub fn delete(&self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Reads the frames of a spool from any position on, while they are written.
#[derive(Debug)]
pub struct SpoolReader {
    spool: Spool,
    /// The file that was read last, and where it begins.
    file: Option<(u64, File)>,
}

/// Reads what a file has from an offset on, up to a limit. Mostly that is little or nothing, so no room is made for more.
fn read_at_most(file: &File, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
    let there = file.metadata()?.len().saturating_sub(offset);
    let mut bytes = vec![0; limit.min(usize::try_from(there).unwrap_or(limit))];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

impl SpoolReader {
    /// Reads the frames of `spool`.
    pub fn new(spool: Spool) -> Self {
        Self { spool, file: None }
    }

    /// Reads at most `limit` bytes from `position` on; fewer at the end of a file, none at the end of the spool.
    ///
    /// # Errors
    /// If they cannot be read, or are deleted already.
    pub fn read(&mut self, position: u64, limit: usize) -> io::Result<Vec<u8>> {
        if let Some((start, file)) = &self.file
            && *start <= position
        {
            let bytes = read_at_most(file, position - start, limit)?;
            if !bytes.is_empty() {
                return Ok(bytes);
            }
        }
        // At the end of a file, the next one has this position in its name.
        let next = match &self.file {
            Some((start, _)) if *start < position => open_frames(&self.spool.frames_at(position))?,
            Some((start, _)) if *start == position => None,
            _ => {
                let files = self.spool.frames();
                let Some((start, path)) = files.iter().rfind(|(start, _)| *start <= position).cloned() else {
                    return if files.is_empty() {
                        Ok(Vec::new())
                    } else {
                        Err(io::ErrorKind::NotFound.into())
                    };
                };
                if let Some(file) = open_frames(&path)? {
                    self.file = Some((start, file));
                    return self.read(position, limit);
                }
                None
            }
        };
        let Some(file) = next else { return Ok(Vec::new()) };
        let bytes = read_at_most(&file, 0, limit)?;
        self.file = Some((position, file));
        Ok(bytes)
    }
}

fn open_frames(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_one_and_deleted_once_they_are_stored() {
        let folder = tempfile::tempdir().expect("a directory");
        let spool = Spool::open(&folder.path().display().to_string(), "job", "n").expect("a spool");
        let mut reader = SpoolReader::new(spool.clone());
        assert!(reader.read(0, 10).expect("nothing").is_empty());
        let write = |position: u64, bytes: &[u8]| {
            fs::write(spool.frames_at(position), bytes).expect("written");
        };
        write(0, b"01234");
        assert_eq!(reader.read(0, 3).expect("read"), b"012");
        assert_eq!(reader.read(3, 9).expect("read"), b"34");
        assert!(reader.read(5, 9).expect("read").is_empty());
        write(5, b"56");
        assert_eq!(reader.read(5, 9).expect("read"), b"56");
        assert_eq!(SpoolReader::new(spool.clone()).read(4, 9).expect("read"), b"4");
        assert_eq!(SpoolReader::new(spool.clone()).read(6, 9).expect("read"), b"6");
        assert_eq!((spool.start(), spool.length()), (0, 7));
        write(7, b"7");
        spool.cut(KEPT_BYTES + 6);
        assert_eq!(spool.start(), 5, "only what is stored, and not the last of it");
        spool.cut(u64::MAX);
        assert_eq!((spool.start(), spool.length()), (7, 8), "the last file stays");
        assert!(SpoolReader::new(spool).read(6, 9).is_err());
    }

    #[test]
    fn names_from_elsewhere_stay_below_the_directory() {
        for name in ["../../etc", "..", "", "a/b", ".hidden", "é\n"] {
            let name = file_name(name);
            assert!(!name.contains('/') && !name.starts_with('.') && !name.is_empty(), "{name}");
        }
        assert_eq!(file_name("node-1.cluster"), "node-1.cluster");
    }

    #[test]
    fn one_agent_at_a_time_appends() {
        let folder = tempfile::tempdir().expect("a directory");
        let base = folder.path().display().to_string();
        let spool = Spool::open(&base, "job", "nodeA").expect("a spool");
        let lock = spool.lock().expect("a lock").expect("free");
        let again = Spool::open(&base, "job", "nodeA").expect("the same");
        assert_eq!(again.directory(), spool.directory());
        assert!(again.lock().expect("a lock").is_none());
        drop(lock);
        assert!(again.lock().expect("a lock").is_some());
        spool.ask_to_stop().expect("written");
        spool.set_complete().expect("written");
        assert!(spool.is_stopping() && spool.is_complete());
        spool.reopen();
        assert!(!spool.is_stopping() && !spool.is_complete());
        spool.delete();
        assert!(!spool.directory().exists());
    }
}

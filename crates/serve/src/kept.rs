//! Pages of large inputs that were read before, kept as files in a directory of this user.
//!
//! A kept page is used only if the input, the way it is read and this program are what they were: all of that is
//! in the file and is compared as a whole. What is missing, damaged, or of another program is read anew; nothing
//! fails because of it. The directory and its files can be read by this user only, as traces may not be for others.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Metadata};
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use floodmark_analyze::usage::index::UsageIndex;
use floodmark_event::Filter;
use floodmark_inspect::OpenProps;
use serde::{Deserialize, Serialize};

/// Bytes that all kept pages take together; the oldest go first.
const MOST_BYTES: u64 = 1 << 30;
/// Bytes of one page that are read.
const MOST_BYTES_OF_ONE: u64 = 256 << 20;
const EXTENSION: &str = "page";

/// Where and when to keep pages.
#[derive(Clone, Debug)]
pub struct KeepProps {
    /// The directory; it is made if it is missing.
    pub folder: PathBuf,
    /// Events from which on a page is kept: others are read quickly.
    pub least_events: u64,
}

/// A page that was made before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptPage {
    pub(super) origin_ns: Option<i64>,
    pub(super) tally: Option<u8>,
    pub(super) has_samples: bool,
    pub(super) html: String,
    pub(super) json: String,
    pub(super) index: Option<UsageIndex>,
}

/// Place of the page of one input.
pub(super) struct Place {
    folder: PathBuf,
    path: PathBuf,
    /// All that the page depends on.
    key: String,
    pub(super) least_events: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    key: String,
    page: KeptPage,
}

impl Place {
    /// Returns where the page of an input is kept; none if what it depends on cannot be told.
    pub(super) fn of(props: &KeepProps, input: &Path, filter: &Filter, open: &OpenProps) -> Option<Self> {
        let input = input.canonicalize().ok()?;
        let program = std::env::current_exe().and_then(fs::metadata).ok()?;
        let way = format!("{}\n{filter:?}\n{open:?}", input.display());
        let mut key = format!("{}\n{way}\n", env!("CARGO_PKG_VERSION"));
        add_state(&mut key, "program", &program);
        add_content(&mut key, &input, 0).ok()?;
        let mut hasher = DefaultHasher::new();
        way.hash(&mut hasher);
        let path = props.folder.join(format!("{:016x}.{EXTENSION}", hasher.finish()));
        Some(Self { folder: props.folder.clone(), path, key, least_events: props.least_events })
    }

    /// Returns the page that was kept, if it is that of the input as it is.
    pub(super) fn load(&self) -> Option<KeptPage> {
        let file = File::options().read(true).custom_flags(NO_FOLLOW).open(&self.path).ok()?;
        let packed_bytes = file.metadata().ok().filter(Metadata::is_file)?.len();
        let mut bytes = Vec::new();
        let unpacked = zstd::stream::read::Decoder::new(file).ok()?;
        unpacked.take(MOST_BYTES_OF_ONE).read_to_end(&mut bytes).ok().filter(|_| packed_bytes > 0)?;
        let stored: Stored = postcard::from_bytes(&bytes).ok()?;
        (stored.key == self.key).then_some(stored.page)
    }

    /// Keeps a page, and removes the oldest ones if all take too much.
    ///
    /// # Errors
    /// If the file cannot be written; an earlier one stays then.
    pub(super) fn keep(self, page: KeptPage) -> io::Result<()> {
        let stored = Stored { key: self.key, page };
        let bytes = postcard::to_stdvec(&stored).map_err(io::Error::other)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let temporary = self.path.with_extension(format!("{}.tmp", std::process::id()));
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600).custom_flags(NO_FOLLOW);
        let _ = fs::remove_file(&temporary);
        let written = options.open(&temporary).and_then(|file| {
            let mut packed = zstd::stream::write::Encoder::new(file, 1)?;
            packed.include_checksum(true)?;
            packed.write_all(&bytes)?;
            packed.finish()?.sync_all()?;
            fs::rename(&temporary, &self.path)
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| remove_oldest(&self.folder, MOST_BYTES))
    }
}

/// `O_NOFOLLOW` of Linux: a link in the place of a page is not followed.
const NO_FOLLOW: i32 = 0o40_0000;

/// Adds what tells one state of a file from another.
fn add_state(key: &mut String, name: &str, found: &Metadata) {
    let (device, inode) = (found.dev(), found.ino());
    let (seconds, nanoseconds) = (found.mtime(), found.mtime_nsec());
    let _ = writeln!(key, "{name} {device} {inode} {} {seconds}.{nanoseconds:09}", found.len());
}

/// Adds the state of a file, or of all files of a trace.
fn add_content(key: &mut String, path: &Path, depth: usize) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    add_state(key, &path.file_name().unwrap_or_default().to_string_lossy(), &found);
    if !found.is_dir() || depth > 3 {
        return Ok(());
    }
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    entries.sort();
    entries.iter().try_for_each(|entry| add_content(key, entry, depth + 1))
}

fn remove_oldest(folder: &Path, most_bytes: u64) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_page = |entry: fs::DirEntry| {
        let path = entry.path();
        let found = entry.metadata().ok().filter(Metadata::is_file)?;
        let is_page = path.extension().is_some_and(|extension| extension == EXTENSION);
        is_page.then(|| (found.modified().unwrap_or(SystemTime::UNIX_EPOCH), found.len(), path))
    };
    let mut pages: Vec<_> = entries.filter_map(of_page).collect();
    pages.sort();
    let mut bytes: u64 = pages.iter().map(|page| page.1).sum();
    for (_, own, path) in pages {
        if bytes <= most_bytes {
            return;
        }
        if fs::remove_file(path).is_ok() {
            bytes -= own;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use floodmark_testkit::TempDir;

    use super::*;

    fn place(folder: &Path, input: &Path) -> Place {
        let props = KeepProps { folder: folder.to_owned(), least_events: 0 };
        Place::of(&props, input, &Filter::default(), &OpenProps::default()).unwrap()
    }

    #[test]
    fn a_kept_page_comes_back_until_its_input_changes_or_it_is_damaged() {
        let test = TempDir::new("kept");
        let (folder, input) = (test.path().join("cache"), test.path().join("log.csv"));
        fs::write(&input, "one").unwrap();
        assert_eq!(place(&folder, &input).load(), None);
        let page = KeptPage { origin_ns: Some(7), html: "<p>".into(), ..KeptPage::default() };
        place(&folder, &input).keep(page.clone()).unwrap();
        assert_eq!(place(&folder, &input).load(), Some(page.clone()));
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        let kept = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o777, 0o600);

        let other = Filter { devices: Some(vec![1]), ..Filter::default() };
        let props = KeepProps { folder: folder.clone(), least_events: 0 };
        assert_eq!(Place::of(&props, &input, &other, &OpenProps::default()).unwrap().load(), None);

        let whole = fs::read(&kept).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&kept, bytes).unwrap();
            let found = place(&folder, &input).load();
            assert!(found.is_none_or(|found| found == page), "byte {at}");
        }
        fs::write(&kept, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(place(&folder, &input).load(), None);
        fs::write(&kept, whole).unwrap();
        assert_eq!(place(&folder, &input).load(), Some(page));

        fs::write(&input, "more").unwrap();
        assert_eq!(place(&folder, &input).load(), None);
    }

    #[test]
    fn the_oldest_pages_go_first() {
        let test = TempDir::new("kept-oldest");
        for (name, age) in [("a.page", 30), ("b.page", 20), ("c.page", 10), ("other", 40)] {
            let file = File::create(test.path().join(name)).unwrap();
            file.set_len(100).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        remove_oldest(test.path(), 200);
        let exists = |name: &str| test.path().join(name).exists();
        assert_eq!(["a.page", "b.page", "c.page", "other"].map(exists), [false, true, true, true]);
    }
}

//! Traces of other users, and traces made to do harm: reading them writes nothing and stays within bounds.
//!
//! The owner of a trace matters only to the superuser, who may write to every file. Where these tests run as an
//! ordinary user, the two that need another owner return at once.
#![expect(unsafe_code, reason = "changes the user, and makes pipes and devices")]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
use floodmark_event::EventBatch;
use floodmark_store::manifest::Part;
use floodmark_store::{Error, Manifest, Run, ScanProps, Source as _, Table, Trace, repair};
use floodmark_testkit::TempDir;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// An ordinary user.
const USER: u32 = 65534;
const VICTIM: &[u8] = b"precious";

fn is_root() -> bool {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() == 0 }
}

/// Runs `work` in a forked child as an ordinary user, or as who we are if that is one; returns whether it
/// ended well.
fn as_user(work: impl FnOnce()) -> bool {
    // SAFETY: the child runs a test's code on its only thread and leaves without returning here. The C
    // library makes its allocator usable in a child.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: gives up rights, and is checked.
        if is_root() && unsafe { libc::setgid(USER) != 0 || libc::setuid(USER) != 0 } {
            // SAFETY: nothing runs after it.
            unsafe { libc::_exit(3) };
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: nothing runs after it.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status == 0
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero in it")
}

fn each_file(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    visit(folder);
    for entry in fs::read_dir(folder).expect("reads").flatten() {
        if entry.file_type().expect("has a type").is_dir() {
            each_file(&entry.path(), visit);
        } else {
            visit(&entry.path());
        }
    }
}

fn give_to(user: u32, folder: &Path) {
    each_file(folder, &mut |path| {
        let path = c_path(path);
        // SAFETY: the path ends with a zero.
        assert_eq!(unsafe { libc::lchown(path.as_ptr(), user, user) }, 0);
    });
}

/// Every file with its contents; links with what they lead to.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    each_file(folder, &mut |path| {
        let kind = fs::symlink_metadata(path).expect("is there").file_type();
        let bytes = match () {
            () if kind.is_symlink() => {
                fs::read_link(path).expect("a link").into_os_string().into_encoded_bytes()
            }
            () if kind.is_file() => fs::read(path).expect("reads"),
            () => Vec::new(),
        };
        found.insert(path.to_owned(), bytes);
    });
    found
}

/// A trace whose recorder was killed: its 600 events are in the tail. Beside it is a file that must not change.
fn killed_trace(folder: &TempDir) -> (PathBuf, PathBuf) {
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("changes");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/v3/unsealed");
    let (trace, victim) = (folder.join("killed.flood"), folder.join("victim"));
    each_file(&fixture, &mut |path| {
        let copy = trace.join(path.strip_prefix(&fixture).expect("within"));
        if path.is_dir() {
            fs::create_dir_all(copy).expect("creates");
        } else {
            fs::copy(path, copy).expect("copies");
        }
    });
    fs::write(&victim, VICTIM).expect("writes");
    (trace, victim)
}

/// Plants links to `victim` under every name that sealing writes to before it renames.
fn plant_links(trace: &Path, victim: &Path) {
    symlink(victim, trace.join("manifest.tmp")).expect("links");
    for table in Table::ALL.map(Table::name) {
        let folder = trace.join(table);
        fs::create_dir(&folder).expect("creates");
        symlink(victim, folder.join("part-000001.parquet.tmp")).expect("links");
    }
}

fn count_events(trace: &Trace) -> usize {
    let mut scan = trace.scan(&ScanProps::default()).expect("scans");
    let (mut batch, mut count) = (EventBatch::new(), 0);
    while scan.next(&mut batch).expect("reads") {
        count += batch.len();
    }
    count
}

#[test]
fn a_killed_trace_of_another_user_is_read_and_nothing_is_written() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new("another-user");
    let (trace, victim) = killed_trace(&folder);
    plant_links(&trace, &victim);
    symlink(&victim, trace.join("segments/lock")).expect("links");
    give_to(USER, &trace);
    let before = contents(folder.path());
    let opened = Trace::open(&trace).expect("opens");
    assert!(opened.has_tail() && !opened.is_live());
    assert_eq!(count_events(&opened), 600);
    assert!(matches!(repair(&trace), Err(Error::NotOwn { .. })));
    assert!(contents(folder.path()) == before);
}

#[test]
fn an_ordinary_user_reads_a_killed_trace_of_the_superuser() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new("superusers");
    let (trace, _) = killed_trace(&folder);
    let before = contents(folder.path());
    assert!(as_user(|| assert_eq!(count_events(&Trace::open(&trace).expect("opens")), 600)));
    assert!(contents(folder.path()) == before);
}

#[test]
fn recovery_writes_through_no_link() {
    for as_root in [true, false] {
        let folder = TempDir::new("links");
        let (trace, victim) = killed_trace(&folder);
        plant_links(&trace, &victim);
        let seal = || {
            let opened = Trace::open(&trace).expect("opens");
            assert!(!opened.has_tail());
            assert_eq!(count_events(&opened), 600);
        };
        if as_root {
            seal();
        } else {
            if is_root() {
                give_to(USER, folder.path());
            }
            assert!(as_user(seal));
        }
        assert_eq!(fs::read(&victim).expect("reads"), VICTIM);
    }
}

#[test]
fn a_lock_that_is_a_link_leaves_the_trace_as_it_is() {
    let folder = TempDir::new("lock-link");
    let (trace, victim) = killed_trace(&folder);
    let _ = fs::remove_file(trace.join("segments/lock"));
    symlink(folder.join("made"), trace.join("segments/lock")).expect("links");
    let before = contents(folder.path());
    assert_eq!(count_events(&Trace::open(&trace).expect("opens")), 600);
    assert!(contents(folder.path()) == before);
    assert_eq!(fs::read(&victim).expect("reads"), VICTIM);
}

#[test]
fn a_folder_that_is_a_link_is_neither_read_nor_written() {
    let folder = TempDir::new("folder-link");
    let (trace, _) = killed_trace(&folder);
    let elsewhere = folder.join("elsewhere");
    fs::create_dir(&elsewhere).expect("creates");
    fs::write(elsewhere.join("part-000009.parquet"), VICTIM).expect("writes");
    symlink(&elsewhere, trace.join("event")).expect("links");
    // What cannot be sealed is read where it is.
    assert_eq!(count_events(&Trace::open(&trace).expect("opens")), 600);
    assert_eq!(fs::read_dir(&elsewhere).expect("reads").count(), 1);

    let (trace, segments) = (folder.join("links.flood"), folder.join("killed.flood/segments"));
    fs::create_dir(&trace).expect("creates");
    symlink(&segments, trace.join("segments")).expect("links");
    let error = Trace::open(&trace).expect_err("refused").to_string();
    assert!(error.ends_with("links.flood/segments is damaged: it is not a plain directory"), "{error}");
}

/// What opening the trace at `path` says, with its cause.
fn refusal(path: &Path) -> String {
    let error = Trace::open(path).expect_err("refused");
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}

#[test]
fn a_manifest_that_is_no_plain_file_is_refused_at_once() {
    let folder = TempDir::new("odd-manifest");
    let trace = folder.join("a.flood");
    fs::create_dir_all(trace.join("segments")).expect("creates");
    let manifest = trace.join("manifest.json");
    // SAFETY: the path ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(c_path(&manifest).as_ptr(), 0o600) }, 0);
    assert!(fs::metadata(&manifest).expect("is there").file_type().is_fifo());
    assert!(refusal(&trace).ends_with("manifest.json: it is not a plain file"), "{}", refusal(&trace));
    fs::remove_file(&manifest).expect("removes");

    symlink("/dev/zero", &manifest).expect("links");
    let said = refusal(&trace);
    assert!(said.contains("manifest.json: it is a symbolic link"), "{said}");
    fs::remove_file(&manifest).expect("removes");

    // SAFETY: the path ends with a zero; refused unless we are the superuser.
    let made = unsafe { libc::mknod(c_path(&manifest).as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 5)) };
    if made == 0 && File::open(&manifest).is_ok() {
        assert!(refusal(&trace).ends_with("manifest.json: it is not a plain file"), "{}", refusal(&trace));
    }
}

fn part(file: &str) -> Part {
    Part {
        table: Table::Event.name().to_owned(),
        file: file.to_owned(),
        rows: 1,
        bytes: 1,
        min_time_ns: 0,
        max_time_ns: 0,
        order: 0,
        processes: None,
    }
}

#[test]
fn a_manifest_with_too_many_parts_or_bytes_is_refused() {
    let folder = TempDir::new("many-parts");
    let trace = folder.join("a.flood");
    fs::create_dir_all(trace.join("segments")).expect("creates");
    let mut manifest = Manifest::new(Run::default());
    manifest.parts = vec![part("part-000001.parquet"); 300_000];
    fs::write(trace.join("manifest.json"), serde_json::to_vec(&manifest).expect("JSON")).expect("writes");
    let said = refusal(&trace);
    assert!(said.contains("it lists 300000 parts, and at most 262144 are allowed"), "{said}");

    // A sparse file: nothing but zeros, and no disk.
    let file = File::create(trace.join("manifest.json")).expect("creates");
    file.set_len(1 << 40).expect("grows");
    let said = refusal(&trace);
    assert!(said.contains("it has more than 256 MiB"), "{said}");
}

/// Writes a part of one column in one row group and opens the trace that lists it.
fn scan_part(folder: &TempDir, column: &str, batches: impl Iterator<Item = ArrayRef>) -> (u64, Error) {
    let trace = folder.join("bomb.flood");
    let _ = fs::remove_dir_all(&trace);
    fs::create_dir_all(trace.join("event")).expect("creates");
    let mut manifest = Manifest::new(Run::default());
    manifest.parts.push(part("part-000001.parquet"));
    let path = trace.join("event/part-000001.parquet");
    let mut writer = None;
    for array in batches {
        let records = RecordBatch::try_from_iter([(column, array)]).expect("a column");
        let writer = writer.get_or_insert_with(|| {
            let properties = WriterProperties::builder()
                .set_compression(Compression::ZSTD(ZstdLevel::default()))
                .set_dictionary_enabled(column != "resource")
                .set_max_row_group_row_count(None)
                .build();
            let file = File::create(&path).expect("creates");
            ArrowWriter::try_new(file, records.schema(), Some(properties)).expect("writes")
        });
        writer.write(&records).expect("writes");
    }
    writer.expect("has rows").close().expect("closes");
    manifest.save(&trace).expect("saves");
    let bytes = fs::metadata(&path).expect("is there").len();
    (
        bytes,
        Trace::open(&trace)
            .and_then(|trace| trace.scan(&ScanProps::default())?.next(&mut EventBatch::new()))
            .expect_err("refused"),
    )
}

#[test]
fn a_small_part_that_stands_for_gigabytes_is_refused() {
    let folder = TempDir::new("bombs");
    let zeros: ArrayRef = Arc::new(UInt32Array::from(vec![0; 1 << 20]));
    let (bytes, error) = scan_part(&folder, "process", (0..5).map(|_| Arc::clone(&zeros)));
    assert!(bytes < 40_000, "{bytes}");
    let said = error.to_string();
    assert!(
        said.contains("part-000001.parquet is damaged: the number of rows of a group is 5242880"),
        "{said}"
    );

    let text: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(16 << 20)]));
    let (bytes, error) = scan_part(&folder, "resource", (0..33).map(|_| Arc::clone(&text)));
    assert!(bytes < 100_000, "{bytes}");
    let said = error.to_string();
    assert!(said.contains("the unpacked bytes of a column are 5536"), "{said}");
    assert!(error.hint().is_some_and(|hint| hint.contains("floodmark repair")));
}

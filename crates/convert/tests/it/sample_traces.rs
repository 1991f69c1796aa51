//! Logs of samples brought into a trace, and the trace read back.

use std::fs;
use std::path::{Path, PathBuf};

use floodmark_convert::{Adopted, OpenProps, SampleSource, Seen, follow, open_samples};
use floodmark_event::{ProcessId, Tables};
use floodmark_store::{Overwrite, Run, ScanProps, TraceWriter};

use crate::sample_logs::{Reading, all, drain, fixture};

fn scratch(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("samples-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Writes everything a source has, as import does.
fn write(source: &mut dyn SampleSource, writer: &mut TraceWriter, tables: &mut Tables) {
    let mut adopted = Adopted::default();
    let mut rows = Vec::new();
    while source.next(&mut rows).expect("good rows") {
        for mut row in rows.drain(..) {
            adopted.row(&mut row, source.tables(), tables);
            match row {
                Seen::Scope(row) => writer.write_rows(&[row], tables),
                Seen::Sample(row) => writer.write_rows(&[row], tables),
                Seen::Output(row) => writer.write_rows(&[row], tables),
                Seen::Stack(row) => writer.write_rows(&[row], tables),
            }
            .expect("room");
        }
    }
    Adopted::names(source.tables(), tables);
}

/// Everything in words, so that ids do not matter.
fn words(read: &Reading) -> (Vec<String>, Vec<String>, Vec<String>, Vec<String>) {
    let mut others = (Vec::new(), Vec::new(), Vec::new());
    for row in &read.rows {
        match row {
            Seen::Sample(_) => {}
            Seen::Output(row) => others.0.push(format!("{} {:?}", row.time_ns, row.bytes)),
            Seen::Stack(row) => {
                let stack = read.tables.stack_text(row.stack).join(";");
                others.1.push(format!("{} {} {} {stack}", row.time_ns, row.subject, row.thread));
            }
            Seen::Scope(row) => {
                let name = read.tables.string(row.name);
                others.2.push(format!(
                    "{} {} {} {} {name}",
                    row.time_ns,
                    row.action.name(),
                    row.scope,
                    row.parent
                ));
            }
        }
    }
    (read.samples(), others.0, others.1, others.2)
}

#[test]
fn every_fixture_reads_back_from_a_trace_as_it_went_in() {
    let folder = scratch("back");
    for (at, (path, _)) in all().into_iter().enumerate() {
        let before = drain(open_samples(&path, &OpenProps::default()).expect("a log"));
        let trace = folder.join(format!("{at}.flood"));
        let mut writer = TraceWriter::create(&trace, Run::default(), Overwrite::No).expect("a trace");
        let mut tables = Tables::default();
        tables.intern("strings of another log");
        write(&mut *open_samples(&path, &OpenProps::default()).expect("a log"), &mut writer, &mut tables);
        writer.finish(&tables, &before.losses).expect("a trace");
        let after = drain(open_samples(&trace, &OpenProps::default()).expect("a trace"));
        assert_eq!(after.error, None);
        assert_eq!(words(&after), words(&before), "{}", path.display());
        assert_eq!(after.tables.subjects, before.tables.subjects);
        assert_eq!(after.losses, before.losses);
        let times: Vec<_> = after.rows.iter().map(Seen::time_ns).collect();
        assert!(times.is_sorted(), "{}", path.display());
        // A recording that has ended is followed to its end.
        let followed = drain(follow(&trace, &ScanProps::default()).expect("a trace"));
        assert_eq!(words(&followed), words(&before), "{}", path.display());
    }
    fs::remove_dir_all(folder).expect("it was there");
}

#[test]
fn logs_of_several_tools_share_one_trace_and_one_clock() {
    let folder = scratch("shared");
    let trace = folder.join("both.flood");
    let mut writer = TraceWriter::create(&trace, Run::default(), Overwrite::No).expect("a trace");
    let mut tables = Tables::default();
    for (at, name) in
        ["mprof/functions.dat", "smi/query_gpu_all.csv", "memory_logger/gdb_pstack.log"].iter().enumerate()
    {
        let props = OpenProps { process: ProcessId(at as u32 + 1), ..OpenProps::default() };
        if at > 0 {
            writer.next_sequence().expect("room");
        }
        write(&mut *open_samples(&fixture(name), &props).expect("a log"), &mut writer, &mut tables);
    }
    writer.finish(&tables, &floodmark_store::Losses::default()).expect("a trace");
    let read = drain(open_samples(&trace, &OpenProps::default()).expect("a trace"));
    assert_eq!(read.tables.subjects.len(), 5);
    assert!(read.rows.iter().map(Seen::time_ns).collect::<Vec<_>>().is_sorted());
    let stacks =
        read.rows.iter().filter_map(|row| if let Seen::Stack(row) = row { Some(row.stack) } else { None });
    assert!(
        stacks.into_iter().all(|stack| read
            .tables
            .stack_text(stack)
            .last()
            .is_some_and(|f| f.contains("main")))
    );
    fs::remove_dir_all(folder).expect("it was there");
}

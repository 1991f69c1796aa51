//! `floodmark serve` answers requests that carry its token, and no others.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};

use floodmark_event::{Kind, StackId};
use floodmark_tail::{self as tail, AllocDomain, RecordProps, Recorder};
use floodmark_testkit::wait::{DEADLINE, wait_for_exit, wait_until};
use serde_json::Value;

use crate::cli_test::CliTest;

/// A server that is ended with the test.
pub(crate) struct Server {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    host: String,
    token: String,
}

impl Server {
    pub(crate) fn start(test: &CliTest, args: &[&str]) -> Self {
        let mut command = test.command(&[&["serve"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some((host, token)) =
            line.trim().strip_prefix("http://").and_then(|url| url.split_once("/?token="))
        else {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("{line}{why}");
        };
        Self { host: host.to_owned(), token: token.to_owned(), child, _stdout: stdout }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Sends a request with these headers instead of the usual ones, and reads all of the answer.
    fn raw(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let mut head = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
        if headers.iter().all(|(name, _)| *name != "Host") {
            let _ = write!(head, "Host: {}\r\n", self.host);
        }
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let mut stream = self.connect();
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Answer::of(&String::from_utf8(bytes).unwrap())
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        self.raw("GET", target, &[("Authorization", &bearer)])
    }

    fn signal(&self, signal: i32) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Reads events that a server sends until one is as wanted.
fn wait_for(reader: &mut impl std::io::BufRead, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the stream ended");
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let state: Value = serde_json::from_str(data).unwrap();
        if wanted(&state) {
            return state;
        }
    }
}

fn listen(server: &Server) -> BufReader<TcpStream> {
    let mut stream = server.connect();
    let (host, token) = (&server.host, &server.token);
    let request = format!("GET /api/events?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    BufReader::new(stream)
}

#[test]
fn the_page_is_the_report_and_knows_that_a_server_is_behind_it() {
    let test = CliTest::new();
    let server = Server::start(&test, &["golden.csv"]);
    let page = server.raw("GET", &format!("/?token={}", server.token), &[]);
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains("<meta name=\"floodmark-serve\" content=\"1\">"));
    assert!(page.body.contains("default-src 'none'; connect-src 'self'; script-src"));
    let report = test.run(&["report", "golden.csv", "-o", "-"]).ok().stdout;
    assert!(!report.contains("<meta name=\"floodmark-serve\"") && !report.contains("connect-src"));
    let data = |html: &str| html.split_once("id=\"floodmark-data\">").unwrap().1.to_owned();
    assert_eq!(data(&page.body), data(&report), "the same document and columns");
    let sent = server.get("/api/document").json();
    let (json, _) = data(&report).split_once("</script>").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(sent["document"], serde_json::from_str::<Value>(&json).unwrap());
    assert_eq!(sent["version"], 1);
    for column in sent["columns"].as_array().unwrap() {
        assert!(report.contains(column.as_str().unwrap()));
    }
    let head = server.raw("HEAD", &format!("/?token={}", server.token), &[]);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn every_answer_forbids_what_pages_could_do_with_it() {
    let test = CliTest::new();
    let server = Server::start(&test, &["golden.csv"]);
    for target in ["/", "/api/document", "/api/range?from=0&to=1", "/nothing", "/api/range"] {
        for answer in [server.get(target), server.raw("GET", target, &[])] {
            for line in [
                "cache-control: no-store",
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
                "x-frame-options: deny",
                "frame-ancestors 'none'",
                "content-security-policy: default-src 'none'",
            ] {
                assert!(answer.head.contains(line), "{target} lacks {line}: {}", answer.head);
            }
            assert!(!answer.head.contains("access-control"), "{}", answer.head);
        }
    }
    let policy = server.get("/").head;
    let policy = policy.lines().find(|line| line.starts_with("content-security-policy")).unwrap();
    assert!(policy.contains("connect-src 'self'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[test]
fn without_the_token_there_is_nothing_but_a_word_of_help() {
    let test = CliTest::new();
    let server = Server::start(&test, &["golden.csv"]);
    let wrong = "0".repeat(32);
    for target in ["/", "/api/document", "/api/events", "/api/range?from=0&to=9", "/nothing"] {
        for token in
            [String::new(), wrong.clone(), format!("{}0", server.token), server.token[1..].to_owned()]
        {
            let joint = if target.contains('?') { '&' } else { '?' };
            let answer = server.raw("GET", &format!("{target}{joint}token={token}"), &[]);
            assert_eq!(answer.status, 403, "{target} {token}");
            assert!(answer.body.contains("the address that 'floodmark serve' printed"), "{}", answer.body);
        }
    }
    let other = Server::start(&test, &["golden.csv"]);
    assert_ne!(other.token, server.token);
    assert_eq!(server.raw("GET", &format!("/?token={}", other.token), &[]).status, 403);
}

#[test]
fn names_of_other_sites_and_requests_from_them_are_refused() {
    let test = CliTest::new();
    let server = Server::start(&test, &["golden.csv"]);
    let target = format!("/api/document?token={}", server.token);
    let port = server.host.split_once(':').unwrap().1;
    let origin = format!("http://{}", server.host);
    assert_eq!(server.raw("GET", &target, &[("Host", &format!("localhost:{port}"))]).status, 200);
    assert_eq!(server.raw("GET", &target, &[("Origin", &origin)]).status, 200);
    for (name, value) in [
        ("Host", "evil.example"),
        ("Host", "127.0.0.1.evil.example"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let answer = server.raw("GET", &target, &[(name, value)]);
        assert_eq!(answer.status, 403, "{name}: {value}");
        assert!(
            answer.body.contains("another site") || answer.body.contains("Another site"),
            "{}",
            answer.body
        );
    }
    let without_host = {
        let mut stream = server.connect();
        stream.write_all(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(!without_host.contains(" 200 "), "{without_host}");
}

#[test]
fn only_reading_is_possible_and_what_is_sent_has_bounds() {
    let test = CliTest::new();
    let server = Server::start(&test, &["golden.csv"]);
    let target = format!("/?token={}", server.token);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        let answer = server.raw(method, &target, &[]);
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: get, head"), "{}", answer.head);
    }
    assert_eq!(server.raw("GET", &target, &[("Content-Length", "10")]).status, 413);
    assert_eq!(server.raw("GET", &target, &[("Transfer-Encoding", "chunked")]).status, 413);
    for range in ["", "?from=a&to=2", "?from=5&to=2", "?from=1", "?from=0&to=1&points=x"] {
        assert_eq!(server.get(&format!("/api/range{range}")).status, 400, "{range}");
    }
    // A head that does not end: the connection does.
    let mut stream = server.connect();
    let long = format!("GET {target} HTTP/1.1\r\nX: {}", "x".repeat(40_000));
    let _ = stream.write_all(long.as_bytes());
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    assert!(!String::from_utf8_lossy(&text).contains("200 OK"));
    assert_eq!(server.raw("GET", &target, &[]).status, 200, "others are not disturbed");
}

#[test]
fn connections_that_hang_are_closed_and_do_not_keep_the_owner_out() {
    let test = CliTest::new();
    let server = Server::start(&test, &["golden.csv"]);
    let mut hanging: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
    let answered = format!("HEAD /?token={} HTTP/1.1\r\nHost: {}\r\n\r\n", server.token, server.host);
    for (at, stream) in hanging.iter_mut().enumerate() {
        match at % 3 {
            0 => stream.write_all(b"GET / HTTP/1.1\r\n").unwrap(),
            1 => stream.write_all(b"\r\n\r\n").unwrap(),
            _ => {
                stream.write_all(answered.as_bytes()).unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                stream.write_all(b"\r\n\r\n").unwrap();
            }
        }
    }
    assert_eq!(server.get("/api/document").status, 200);
    for stream in &mut hanging {
        let mut text = Vec::new();
        if let Err(error) = stream.read_to_end(&mut text) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server has closed it");
        }
        assert!(!String::from_utf8_lossy(&text).contains("200 OK"));
    }
}

#[test]
fn a_range_has_every_change_if_there_is_room_and_its_extremes_if_not() {
    let test = CliTest::new();
    let mut log = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    for at in 0..30_000u64 {
        let (second, micro, turn) = (at / 1000, at % 1000 * 1000, at % 60);
        let (action, block) = if turn < 30 { ("allocate", turn + 1) } else { ("free", 60 - turn) };
        let _ =
            writeln!(log, "1,10:00:{second:02}.{micro:06},{action},0x{:x},{},0x0", block << 20, block << 10);
    }
    test.write("long.csv", log);
    let server = Server::start(&test, &["long.csv"]);
    let sent = server.get("/api/document").json();
    let note = sent["document"]["charts"][0]["note"].as_str().unwrap().to_owned();
    assert!(note.starts_with("Reduced"), "{note}");
    let range = server.get("/api/range?from=5000000000&to=5099000000&points=2000").json();
    let chart = &range["charts"][0];
    assert_eq!(chart["title"], sent["document"]["charts"][0]["title"]);
    assert_eq!(chart["note"], "Every change is drawn.");
    // What was live when it begins is one with the first of the hundred changes.
    assert_eq!(chart["series"][0]["times"]["length"].as_u64().unwrap(), 100);
    let coarse = server.get("/api/range?from=0&to=29999000000&points=100").json();
    assert!(coarse["charts"][0]["note"].as_str().unwrap().starts_with("Reduced"));
    assert!(coarse["charts"][0]["series"][0]["times"]["length"].as_u64().unwrap() <= 101);
}

#[test]
fn any_instant_is_what_watermark_says_of_it() {
    let test = CliTest::new();
    let server = Server::start(&test, &["golden.csv"]);
    let span = server.get("/api/document").json()["document"]["span"].as_i64().unwrap();
    for at in [0, span / 3, span / 2 + 1, span] {
        let sent = server.get(&format!("/api/snapshots?at={at}")).json();
        let mark = test.run(&["watermark", "golden.csv", "--json", "--at", &format!("+{at}ns")]).json();
        let mut told: Vec<(u64, u64)> = mark["blocks"].as_array().unwrap().iter().map(told_block).collect();
        let listed = |name: &str| column(&sent, &sent["snapshots"]["listed"][name]);
        let (high, low) = (listed("high"), listed("low"));
        let addresses = high.iter().zip(&low).map(|(high, low)| high << 32 | low);
        let mut shown: Vec<(u64, u64)> = addresses.zip(listed("bytes")).collect();
        told.sort_unstable();
        shown.sort_unstable();
        assert_eq!(shown, told, "{at}");
        let note = sent["snapshots"]["note"].as_str().unwrap();
        assert!(note.starts_with("Exactly this instant; "), "{note}");
        assert_eq!(column(&sent, &sent["snapshots"]["times"]), [at as u64]);
        assert_eq!(column(&sent, &sent["snapshots"]["bytes"]), [mark["reported_bytes"].as_u64().unwrap()]);
        assert_eq!(column(&sent, &sent["snapshots"]["blocks"]), [mark["reported_blocks"].as_u64().unwrap()]);
    }
    for at in ["", "?at=x", "?at=1,,2", &format!("?at={}", "1,".repeat(20) + "1")] {
        assert_eq!(server.get(&format!("/api/snapshots{at}")).status, 400, "{at}");
    }
}

/// Address and bytes of a block that `watermark` tells of.
fn told_block(block: &Value) -> (u64, u64) {
    let address = block["address"].as_str().unwrap().trim_start_matches("0x");
    (u64::from_str_radix(address, 16).unwrap(), block["bytes"].as_u64().unwrap())
}

/// The numbers of a column of an answer: differences as zigzag varints, deflated, in base64.
fn column(sent: &Value, column: &Value) -> Vec<u64> {
    let text = sent["columns"][column["column"].as_u64().unwrap() as usize].as_str().unwrap();
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut deflated, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for byte in text.bytes().take_while(|byte| *byte != b'=') {
        (bits, count) = (bits << 6 | u32::from(digit(byte)), count + 6);
        if count >= 8 {
            count -= 8;
            deflated.push((bits >> count) as u8);
        }
    }
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(deflated.as_slice()).read_to_end(&mut bytes).unwrap();
    let (mut numbers, mut value, mut zigzag, mut shift) = (Vec::new(), 0i64, 0u64, 0);
    for byte in bytes {
        zigzag |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            value += (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            numbers.push(value as u64);
            (zigzag, shift) = (0, 0);
        }
    }
    assert_eq!(numbers.len() as u64, column["length"].as_u64().unwrap());
    numbers
}

#[test]
fn a_file_that_has_changed_is_not_mixed_with_what_is_shown() {
    let test = CliTest::new();
    test.write("log.csv", "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000000,allocate,0x10,8,0x0\n");
    let server = Server::start(&test, &["log.csv"]);
    let asked = ["/api/range?from=0&to=1", "/api/snapshots?at=0"];
    for target in asked {
        assert_eq!(server.get(target).status, 200, "{target}");
    }
    test.write(
        "log.csv",
        "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000000,allocate,0x20,9,0x0\n\n",
    );
    for target in asked {
        let answer = server.get(target);
        assert_eq!(answer.status, 409, "{target}: {}", answer.body);
        assert!(answer.body.contains("has changed since 'floodmark serve' was started; start it again"));
    }
    assert_eq!(server.get("/api/document").json()["document"]["charts"][0]["peak"]["bytes"], 8);
}

#[test]
fn a_trace_that_is_replaced_while_it_grows_stays_as_it_was_and_says_so() {
    let test = CliTest::new();
    let recorder = Recorder::start_global(RecordProps::new(test.path("first.flood"))).unwrap();
    let domain = AllocDomain { device: 0, kind: Kind::Device, ..AllocDomain::default() };
    tail::alloc(1 << 12, 100, &domain, StackId(0));
    test.run(&["run", "-q", "-o", "second.flood", "--", "true"]);
    // A link changes at once, without a moment when there is nothing.
    std::os::unix::fs::symlink(test.path("first.flood"), test.path("link.flood")).unwrap();
    std::os::unix::fs::symlink(test.path("second.flood"), test.path("next.flood")).unwrap();
    let server = Server::start(&test, &["link.flood"]);
    let mut news = listen(&server);
    let first = wait_for(&mut news, |state| state["state"] == "live");
    tail::alloc(2 << 12, 5000, &domain, StackId(0));
    wait_for(&mut news, |state| state["version"].as_u64() > first["version"].as_u64());
    std::fs::rename(test.path("next.flood"), test.path("link.flood")).unwrap();
    let failed = wait_for(&mut news, |state| state["state"] == "failed");
    let why = failed["why"].as_str().unwrap();
    assert!(why.contains("this trace was replaced by another recording; start again"), "{why}");
    let sent = server.get("/api/document").json();
    assert_eq!(sent["document"]["charts"][0]["peak"]["bytes"], 5100, "what was read stays");
    for target in ["/api/range?from=0&to=1", "/api/snapshots?at=0"] {
        let answer = server.get(target);
        assert!(answer.status == 409 && answer.body.contains("replaced by another recording"), "{target}");
    }
    recorder.stop();
}

#[test]
fn a_recorded_run_can_be_looked_at_closely_too() {
    let test = CliTest::new();
    test.run(&["run", "-q", "-o", "run.flood", "--", "sh", "-c", "sleep 0.3"]);
    let server = Server::start(&test, &["run.flood"]);
    let sent = server.get("/api/document").json();
    let span = sent["document"]["span"].as_i64().unwrap();
    let range = server.get(&format!("/api/range?from={}&to={span}", span / 2)).json();
    assert_eq!(range["charts"][0]["title"], "Resident memory");
    assert_eq!(range["charts"][0]["note"], "Every change is drawn.");
    let names = |charts: &Value| {
        let series = charts[0]["series"].as_array().unwrap();
        series.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&range["charts"]), names(&sent["document"]["charts"]));
    let none = server.get("/api/snapshots?at=0");
    assert!(none.status == 404 && none.body.contains("/api/range has what was sampled"), "{}", none.body);
}

#[test]
fn a_growing_trace_is_told_of_shown_and_ends() {
    let test = CliTest::new();
    let recorder = Recorder::start_global(RecordProps::new(test.path("live.flood"))).unwrap();
    let domain = AllocDomain { device: 0, kind: Kind::Device, ..AllocDomain::default() };
    tail::alloc(1 << 12, 100, &domain, StackId(0));
    let server = Server::start(&test, &["live.flood"]);
    let mut news = listen(&server);
    let first = wait_for(&mut news, |state| state["state"] == "live");
    tail::alloc(2 << 12, 5000, &domain, StackId(0));
    let second = wait_for(&mut news, |state| state["version"].as_u64() > first["version"].as_u64());
    let sent = server.get("/api/document").json();
    assert!(sent["version"].as_u64() >= second["version"].as_u64());
    assert_eq!(sent["document"]["charts"][0]["peak"]["bytes"], 5100);
    let tables = sent["document"]["tables"].as_array().unwrap();
    assert!(tables.iter().all(|table| table["id"] != "leaks"), "what is live may still be freed");
    tail::free(2 << 12, 5000, &domain);
    recorder.stop();
    wait_for(&mut news, |state| state["state"] == "ended");
    let sent = server.get("/api/document").json()["document"].clone();
    let report = test.run(&["report", "live.flood", "-o", "-"]).ok().stdout;
    let (_, rest) = report.split_once("id=\"floodmark-data\">").unwrap();
    let report: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(sent, report, "in the end it is the report");
}

#[test]
fn signals_end_it_even_while_pages_listen() {
    let test = CliTest::new();
    for signal in [2, 15] {
        let mut server = Server::start(&test, &["golden.csv"]);
        let mut news = listen(&server);
        wait_for(&mut news, |state| state["state"] == "ended");
        server.signal(signal);
        assert_eq!(wait_for_exit(&mut server.child, "the server").code(), Some(0));
        let mut rest = String::new();
        let _ = news.read_to_string(&mut rest);
        assert!(!rest.contains("state"), "{rest}");
    }
}

#[test]
fn a_browser_is_not_in_the_group_that_ctrl_c_ends() {
    let test = CliTest::new();
    let said = test.path("said");
    let script = format!(
        "#!/bin/sh\nread -r pid name state parent group rest < /proc/$$/stat\n\
         echo $pid $group > {0}.new\n/bin/mv {0}.new {0}\n",
        said.display()
    );
    std::fs::create_dir(test.path("bin")).unwrap();
    test.write("bin/xdg-open", script);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(test.path("bin/xdg-open"), executable).unwrap();
    let mut command = test.command(&["serve", "golden.csv", "--open"]);
    command.env("PATH", test.path("bin")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_until("the browser to start", || {
        assert_eq!(child.try_wait().unwrap(), None, "it serves until it is ended");
        said.exists()
    });
    child.kill().unwrap();
    wait_for_exit(&mut child, "the killed server");
    let said = std::fs::read_to_string(said).unwrap();
    let (pid, group) = said.trim().split_once(' ').unwrap();
    assert_eq!(pid, group, "it has a group of its own");
}

#[test]
fn what_cannot_be_served_is_said_with_a_remedy() {
    let test = CliTest::new();
    let ran = test.run(&["serve", "-"]);
    assert!(ran.code == 2 && ran.stderr.contains("standard input"), "{}", ran.stderr);
    let ran = test.run(&["serve", "missing.csv"]);
    assert!(ran.code == 2 && ran.stderr.contains("missing.csv"), "{}", ran.stderr);
    let server = Server::start(&test, &["golden.csv"]);
    let port = server.host.split_once(':').unwrap().1;
    let ran = test.run(&["serve", "golden.csv", "--port", port]);
    assert!(ran.code == 2 && ran.stderr.contains("choose another --port"), "{}", ran.stderr);
}

#[test]
fn an_address_that_others_can_reach_is_warned_of_and_a_missing_browser_is_no_failure() {
    let test = CliTest::new();
    let mut command = test.command(&["serve", "golden.csv", "--bind", "0.0.0.0", "--open"]);
    command.env("PATH", "").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("xdg-open") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains("can be reached over the network"), "{said}");
    assert!(said.contains("paste the address"), "{said}");
}

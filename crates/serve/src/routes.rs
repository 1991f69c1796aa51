//! What can be asked for, and how answers look.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{Method, Request, StatusCode, Uri};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::error::Error;
use crate::gate::{Gate, query};
use crate::listen::Admission;
use crate::worker::{Answer, Ask, Asks, Progress, Unanswered};
use floodmark_inspect::zoom::RangeQuery;

/// Pages that can be told of news at once.
const STREAMS: usize = 24;
/// After so long without news a word is sent to see who is still there.
const QUIET: Duration = Duration::from_secs(10);
/// Points of a line unless asked, and at most.
const POINTS: usize = 4000;
const MOST_POINTS: usize = 20_000;

/// Instants that can be asked for together.
const INSTANTS: usize = 16;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NOTHING: &str = "default-src 'none'";

/// What all requests share.
pub(super) struct App {
    gate: Gate,
    asks: Asks,
    streams: Arc<Semaphore>,
    closed: watch::Sender<bool>,
}

impl App {
    pub(super) fn new(gate: Gate, asks: Asks) -> Self {
        Self { gate, asks, streams: Arc::new(Semaphore::new(STREAMS)), closed: watch::Sender::new(false) }
    }

    /// Ends what would not end by itself.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
        self.asks.close();
    }
}

/// Answers one request, and marks its connection as admitted if the gate lets the request in.
pub(super) async fn answer<B>(app: Arc<App>, request: Request<B>, admission: Admission) -> Response {
    // Bodies are not read; the gate refuses requests that have one.
    let (head, _) = request.into_parts();
    let mut response = match app.gate.check(&head.method, &head.uri, &head.headers) {
        Err((status, why)) => refuse(status, why),
        Ok(()) => {
            admission.grant();
            route(&app, &head.method, &head.uri).await
        }
    };
    let headers = response.headers_mut();
    let mut always = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    always(CACHE_CONTROL, "no-store");
    always(X_CONTENT_TYPE_OPTIONS, "nosniff");
    always(REFERRER_POLICY, "no-referrer");
    always(X_FRAME_OPTIONS, "DENY");
    always(CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
    always(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    always(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    response
}

async fn route(app: &App, method: &Method, uri: &Uri) -> Response {
    match uri.path() {
        "/" => page(app).await,
        "/api/document" => json(app.ask(Ask::Document).await),
        "/api/events" if *method == Method::HEAD => text(StatusCode::OK, ""),
        "/api/events" => events(app),
        "/api/range" => match range_query(uri) {
            Some(query) => json(app.ask(Ask::Range(query)).await),
            None => refuse(
                StatusCode::BAD_REQUEST,
                "A range is /api/range?from=NS&to=NS&points=N, in nanoseconds since the origin.",
            ),
        },
        "/api/snapshots" => match instants(uri) {
            Some(times) => json(app.ask(Ask::Snapshots(times)).await),
            None => refuse(
                StatusCode::BAD_REQUEST,
                "An instant is /api/snapshots?at=NS, in nanoseconds since the origin; commas separate several.",
            ),
        },
        _ => refuse(StatusCode::NOT_FOUND, "There is nothing here; the page itself is at /."),
    }
}

impl App {
    async fn ask(&self, ask: Ask) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.asks.send(ask, reply)?;
        answer.await.unwrap_or(Err(Unanswered::Broken))
    }
}

async fn page(app: &App) -> Response {
    let answer = match app.ask(Ask::Page).await {
        Ok(html) => html,
        Err(unanswered) => return fail(unanswered),
    };
    let mut response = with_type(StatusCode::OK, HTML, Body::from(answer));
    let policy = format!("{}; frame-ancestors 'none'", app.asks.policy());
    let policy = HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static(NOTHING));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response
}

fn range_query(uri: &Uri) -> Option<RangeQuery> {
    let points = query(uri, "points").map_or(Some(POINTS), |points| points.parse().ok())?;
    let query = RangeQuery {
        from: query(uri, "from")?.parse().ok()?,
        to: query(uri, "to")?.parse().ok()?,
        points: points.min(MOST_POINTS),
    };
    (query.from <= query.to).then_some(query)
}

fn instants(uri: &Uri) -> Option<Vec<i64>> {
    let times = query(uri, "at")?.split(',').map(|time| time.parse().ok());
    times.take(INSTANTS + 1).collect::<Option<Vec<i64>>>().filter(|times| times.len() <= INSTANTS)
}

fn json(answer: Answer) -> Response {
    answer.map_or_else(fail, |json| with_type(StatusCode::OK, JSON, Body::from(json)))
}

fn fail(unanswered: Unanswered) -> Response {
    match unanswered {
        Unanswered::Busy => {
            refuse(StatusCode::SERVICE_UNAVAILABLE, "Too much was asked for at once; ask again.")
        }
        Unanswered::Broken => refuse(StatusCode::INTERNAL_SERVER_ERROR, &Error::Broken.to_string()),
        Unanswered::Changed(why) => text(StatusCode::CONFLICT, why),
        Unanswered::NoEvents => text(
            StatusCode::NOT_FOUND,
            "No allocations were recorded here, so which blocks were live is not known; /api/range has what \
             was sampled.",
        ),
        Unanswered::Failed(why) => text(StatusCode::INTERNAL_SERVER_ERROR, &why),
    }
}

fn refuse(status: StatusCode, why: &str) -> Response {
    let mut response = text(status, why);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if status != StatusCode::NOT_FOUND {
        // Whatever else was sent is not read.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn text(status: StatusCode, text: &str) -> Response {
    with_type(status, TEXT, Body::from(Bytes::from(format!("{text}\n"))))
}

fn with_type(status: StatusCode, kind: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Tells when there is more to show.
fn events(app: &App) -> Response {
    let Ok(place) = Arc::clone(&app.streams).try_acquire_owned() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open; close some.");
    };
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(tell(app.asks.progress(), app.closed.subscribe(), sender));
    Sse::new(News { receiver, _place: place }).into_response()
}

async fn tell(
    mut progress: watch::Receiver<Progress>,
    closed: watch::Receiver<bool>,
    sender: mpsc::Sender<Event>,
) {
    let mut news = Event::default().event("state").data(progress.borrow_and_update().json());
    loop {
        // Once nothing will change, a stream would only take a connection from other pages.
        if sender.send(news).await.is_err() || !progress.borrow().is_live() {
            return;
        }
        let changed = timeout(QUIET, progress.changed()).await;
        let is_closed = *closed.borrow();
        if is_closed && !progress.borrow().is_failed() {
            return;
        }
        news = match changed {
            Ok(Ok(())) => Event::default().event("state").data(progress.borrow_and_update().json()),
            Ok(Err(_)) => return,
            Err(_) => Event::default().comment("still here"),
        };
    }
}

/// News of one page.
struct News {
    receiver: mpsc::Receiver<Event>,
    _place: OwnedSemaphorePermit,
}

impl Stream for News {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(cx).map(|event| event.map(Ok))
    }
}

//! Who is let in.
//!
//! A page of another site must neither read what is served here nor have anything done. So a request has
//! to know the token; has to name this machine, so that a name of another site that leads here (DNS
//! rebinding) does not; and must not come from another site, as far as the browser says. Nothing is ever
//! allowed to other sites: no answer has a CORS header.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::{HeaderMap, Method, StatusCode, Uri};

use crate::token::Token;

/// Why a request is refused.
pub(super) type Refusal = (StatusCode, &'static str);

/// Lets requests in, or says why not.
pub(super) struct Gate {
    token: Token,
    /// The name of this machine, where it can be reached over a network.
    name: Option<String>,
}

impl Gate {
    /// A gate for what listens at `address`; `name` is that of the machine.
    pub(super) fn new(token: Token, address: IpAddr, name: Option<String>) -> Self {
        Self { token, name: name.filter(|_| !address.is_loopback()) }
    }

    /// Whether a request may come in.
    pub(super) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        if method != Method::GET && method != Method::HEAD {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are answered here."));
        }
        let has_body = headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
        if has_body || headers.contains_key(TRANSFER_ENCODING) {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "A request has no body here."));
        }
        let host = one(headers, HOST.as_str()).unwrap_or("");
        if !self.is_this_machine(host) {
            return Err((
                StatusCode::FORBIDDEN,
                "This server answers by the address that it printed, not by the name of another site.",
            ));
        }
        let is_foreign = headers.contains_key(ORIGIN)
            && one(headers, ORIGIN.as_str()).and_then(|origin| origin.strip_prefix("http://")) != Some(host);
        let site = headers.contains_key(SITE).then(|| one(headers, SITE).unwrap_or(""));
        if is_foreign || site.is_some_and(|site| site != "same-origin" && site != "none") {
            return Err((
                StatusCode::FORBIDDEN,
                "Another site led here, which is not allowed. Type the address, or paste it.",
            ));
        }
        let bearer = one(headers, AUTHORIZATION.as_str()).and_then(|text| text.strip_prefix("Bearer "));
        let token = bearer.or_else(|| query(uri, "token")).unwrap_or("");
        if !self.token.is(token) {
            return Err((
                StatusCode::FORBIDDEN,
                "This page wants its token. Open the address that 'floodmark serve' printed, all of it: \
                 what comes after '?token=' changes with every start.",
            ));
        }
        Ok(())
    }

    fn is_this_machine(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            // A colon inside of brackets is part of the address.
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (host, ""),
        };
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let is_name = |ours: &str| literal.eq_ignore_ascii_case(ours);
        match (literal.parse::<IpAddr>(), &self.name) {
            _ if is_name("localhost") => true,
            // Numbers are no names that could be made to lead here; the port is that of a tunnel, perhaps.
            (Ok(address), None) => address.is_loopback(),
            (Ok(_), Some(_)) => true,
            (Err(_), Some(ours)) => is_name(ours),
            (Err(_), None) => false,
        }
    }
}

/// What browsers say of where a request comes from.
const SITE: &str = "sec-fetch-site";

/// The value of a header that is there once.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// A parameter of a request. None of ours needs escapes, so there are none.
pub(super) fn query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(gate: &Gate, uri: &str, headers: &[(&'static str, &str)]) -> Option<StatusCode> {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        gate.check(&Method::GET, &uri.parse().unwrap(), &headers).err().map(|(status, _)| status)
    }

    #[test]
    fn hosts_are_this_machine_by_number_or_as_localhost() {
        let token = Token::new().unwrap();
        let uri = format!("/?token={}", token.text());
        let gate = Gate::new(token.clone(), IpAddr::from([127, 0, 0, 1]), Some("box".into()));
        for host in ["127.0.0.1:80", "localhost:9000", "LOCALHOST", "[::1]:80", "127.0.0.1"] {
            assert_eq!(check(&gate, &uri, &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example", "box:80", "127.0.0.1.evil.example:80", "10.0.0.1:80", "", "localhost:x"]
        {
            assert_eq!(check(&gate, &uri, &[("host", host)]), Some(StatusCode::FORBIDDEN), "{host}");
        }
        let gate = Gate::new(token, IpAddr::from([0, 0, 0, 0]), Some("box".into()));
        for host in ["127.0.0.1:80", "10.0.0.1:80", "[fe80::1]:80", "box:80"] {
            assert_eq!(check(&gate, &uri, &[("host", host)]), None, "{host}");
        }
        assert_eq!(check(&gate, &uri, &[("host", "evil.example:80")]), Some(StatusCode::FORBIDDEN));
    }

    #[test]
    fn other_sites_are_refused_whatever_they_know() {
        let token = Token::new().unwrap();
        let uri = format!("/?a=b&token={}", token.text());
        let gate = Gate::new(token, IpAddr::from([127, 0, 0, 1]), None);
        let with = |name, value| check(&gate, &uri, &[("host", "localhost:80"), (name, value)]);
        assert_eq!(with("origin", "http://localhost:80"), None);
        assert_eq!(with("sec-fetch-site", "none"), None);
        for (name, value) in [
            ("origin", "http://localhost:81"),
            ("origin", "https://localhost:80"),
            ("origin", "null"),
            ("origin", "http://evil.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(with(name, value), Some(StatusCode::FORBIDDEN), "{name}: {value}");
        }
        assert_eq!(with("content-length", "5"), Some(StatusCode::PAYLOAD_TOO_LARGE));
        assert_eq!(with("transfer-encoding", "chunked"), Some(StatusCode::PAYLOAD_TOO_LARGE));
    }
}

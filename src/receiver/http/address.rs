//! Where a receiver is: its base URL, taken apart and checked. Pure.

use hyper::Uri;
use hyper::header::HeaderValue;
use rustls::pki_types::ServerName;
use std::fmt;

/// The scheme of a base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Under TLS.
    Https,
}

/// A base URL without user, query and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// The host; an IPv6 address without its brackets.
    pub host: String,
    /// The port, also where the URL names none.
    pub port: u16,
    /// Host and port as the header `Host` has them.
    pub authority: String,
    /// The path before every other one, without a slash at its end.
    pub path: String,
}

impl Address {
    /// Reads a base URL.
    ///
    /// # Errors
    ///
    /// What is wrong with it; never a part of the URL, which may hold a password.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = match url.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            _ => return Err("it must begin with https:// or http://"),
        };
        if rest.contains('@') {
            return Err("it must hold no user and no password; write auth = …");
        }
        if rest.contains(['?', '#']) {
            return Err("it must hold no query and no fragment");
        }
        let uri: Uri = url.parse().map_err(|_| "it is no URL")?;
        let authority = uri.authority().ok_or("the host is missing")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || HeaderValue::from_str(authority.as_str()).is_err() {
            return Err("the host is missing");
        }
        if authority.as_str().ends_with(':') || authority.port_u16() == Some(0) {
            return Err("the port must be from 1 to 65535");
        }
        let default = match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        };
        Ok(Self {
            scheme,
            host: host.to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(default),
            authority: authority.as_str().to_ascii_lowercase(),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Whether it is this machine.
    pub fn is_loopback(&self) -> bool {
        let address: Option<std::net::IpAddr> = self.host.parse().ok();
        self.host == "localhost" || address.is_some_and(|address| address.is_loopback())
    }

    /// The name that its certificate must hold.
    pub(super) fn server_name(&self) -> Result<ServerName<'static>, String> {
        ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{scheme}://{host}:{}{}", self.port, self.path)
    }
}

//! A receiver that speaks HTTP: one request for each attempt.
//!
//! `docs/http.md` says how it is configured and what each answer means.
//!
//! ```text
//!  template ── request ──► exchange ──► classify ── rule, pace
//!  (what is sent, pure)    (one connection,          (what it means, pure)
//!                           one request)
//! ```

mod address;
mod classify;
mod exchange;
mod pace;
mod request;
mod rule;
mod secret;
mod template;
#[cfg(test)]
mod tests;

pub use address::{Address, Scheme};
pub use classify::Reading;
pub use exchange::{BODY_BYTES_MAX, FailureCode};
pub use request::{Body, KeyEncoding, RenderError, Rendered, RequestTemplate};
pub use rule::{Part, Receipt, Rule, RuleOutcome, Statuses};
pub use secret::{Auth, Reference, SecretError};
pub use template::{JsonTemplate, NAMES, Place, Template, TemplateError, Values};

use super::command::evidence::Mask;
use super::{Journal, Receiver};
use crate::outbox::key::OperationKey;
use crate::outbox::outcome::{Outcome, Report};
use crate::store::Attempt;
use async_trait::async_trait;
use classify::classify;
use exchange::Line;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What an HTTP receiver needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// The longest that a connection may take, TLS included.
    pub connect_timeout: Duration,
    /// Certificate authorities to trust instead of this machine's.
    pub ca_file: Option<PathBuf>,
    /// Who we are.
    pub auth: Option<Auth>,
    /// What is sent.
    pub request: RequestTemplate,
    /// How answers are read.
    pub reading: Reading,
}

/// A request to look at.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Preview {
    /// The method.
    pub method: String,
    /// The whole URL.
    pub url: String,
    /// The headers, with a word in place of the secret.
    pub headers: Vec<(String, String)>,
    /// The body, if there is one.
    pub body: Option<String>,
}

/// Why an HTTP receiver cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// Its secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The certificate authorities cannot be read.
    #[error("the certificate authorities {place}: {why}")]
    Authorities {
        /// Of which file, or of this machine.
        place: String,
        /// Why not.
        why: String,
    },
}

/// A receiver that speaks HTTP.
#[derive(Debug)]
pub struct Http {
    line: Line,
    request: RequestTemplate,
    reading: Reading,
    mask: Mask,
}

impl Settings {
    /// What makes it the same account.
    pub fn identity(&self) -> String {
        let auth = self.auth.as_ref().map(Auth::identity).unwrap_or_default();
        format!("http:{}\u{1f}{auth}", self.address)
    }

    /// The request that an operation would be sent as. No secret is read for it.
    ///
    /// # Errors
    ///
    /// [`RenderError`] says why there is none.
    pub fn preview(&self, key: &OperationKey, payload: &str) -> Result<Preview, RenderError> {
        let rendered = self.request.render(key, payload)?;
        let plain = |(name, value): (hyper::header::HeaderName, hyper::header::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let headers = exchange::headers(&self.address, &rendered).into_iter().map(plain);
        let secret = self.auth.as_ref().map(Auth::shown);
        let secret = secret.map(|(name, shown)| (name.to_string(), shown.to_owned()));
        Ok(Preview {
            method: rendered.method.to_string(),
            url: format!("{}{}", self.address, rendered.path),
            headers: headers.chain(secret).collect(),
            body: rendered.body.map(|body| String::from_utf8_lossy(&body).into_owned()),
        })
    }
}

impl Http {
    /// Reads the secret and the certificate authorities; nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`SetUpError`] if one of them cannot be read.
    pub fn new(settings: &Settings) -> Result<Self, SetUpError> {
        let credential = settings.auth.as_ref().map(Auth::read).transpose()?;
        let hidden = credential.iter().flat_map(|credential| &credential.hidden);
        let mask = Mask::of_secrets(hidden.map(String::as_str));
        let tls = match settings.address.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(Arc::new(client(settings.ca_file.as_deref())?)),
        };
        Ok(Self {
            line: Line {
                address: settings.address.clone(),
                connect_timeout: settings.connect_timeout,
                tls,
                credential,
            },
            request: settings.request.clone(),
            reading: settings.reading.clone(),
            mask,
        })
    }

    async fn call(&self, key: &OperationKey, payload: &str) -> Report {
        let rendered = match self.request.render(key, payload) {
            Ok(rendered) => rendered,
            Err(error) => {
                let report = Report::new(Outcome::Unexpected).code("not_rendered");
                let report = Report { request_sent: Some(false), ..report };
                return report.evidence(&self.mask.show(&error.to_string()));
            }
        };
        let verdict = classify(&self.line.exchange(&rendered).await, &self.reading);
        let report = verdict.report.evidence(&self.mask.show(&verdict.seen));
        Report { outcome: self.without_secret(report.outcome), ..report }
    }

    /// An id that repeats our secret is none that may be kept.
    fn without_secret(&self, mut outcome: Outcome) -> Outcome {
        if let Outcome::Applied { remote_id, .. } | Outcome::AlreadyExists { remote_id } =
            &mut outcome
            && remote_id.as_deref().is_some_and(|id| self.mask.hides(id))
        {
            *remote_id = None;
        }
        outcome
    }
}

#[async_trait]
impl Receiver for Http {
    async fn deliver(&self, attempt: &Attempt, _journal: &dyn Journal) -> Report {
        self.call(attempt.key(), attempt.payload()).await
    }
}

/// A client that verifies certificates; there is no other.
fn client(ca_file: Option<&Path>) -> Result<ClientConfig, SetUpError> {
    let place = ca_file.map_or_else(|| "of this machine".to_owned(), |p| p.display().to_string());
    let failed = |why: String| SetUpError::Authorities { place: place.clone(), why };
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let read = CertificateDer::pem_file_iter(path)
                .map_err(|error| failed(error.to_string()))?
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| failed(error.to_string()))?;
            for certificate in read {
                roots.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
        }
        None => {
            // Odd ones among many are left out, as everywhere else on the machine.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(failed("there are none".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

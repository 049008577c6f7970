//! TLS with a certificate that the owner brings: a good one, or one with a fault.

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How a server shakes hands.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// A certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It is no PEM.
    #[error("this is no certificate or key in PEM: {0}")]
    Pem(#[from] pem::Error),
    /// The two do not fit, or are of a kind that is not known.
    #[error("this certificate or key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    /// Shows these certificates, the server's own first, whatever is wrong with them.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or the key is not that of the first one.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// The two kinds of a stream.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake has failed.
    Gone,
}

impl Stream {
    pub(super) async fn shake_hands(&mut self, tls: &Tls) -> io::Result<()> {
        if let Self::Plain(stream) = std::mem::replace(self, Self::Gone) {
            *self = Self::Tls(Box::new(tls.0.accept(stream).await?));
        }
        Ok(())
    }

    pub(super) async fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(piece).await,
            Self::Tls(stream) => stream.read(piece).await,
            Self::Gone => Ok(0),
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
            Self::Gone => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
            Self::Gone => Ok(()),
        }
    }

    /// Whatever is still under way is dropped, and the other side gets a reset.
    pub(super) fn forget(self) -> io::Result<()> {
        match &self {
            Self::Plain(stream) => stream.set_zero_linger(),
            Self::Tls(stream) => stream.get_ref().0.set_zero_linger(),
            Self::Gone => Ok(()),
        }
    }
}

//! Under TLS, with certificates made for the test.

use super::server::{Server, answer};
use super::{SECRET, attempt, configuration, until_ended};
use crate::support::{Done, World, present};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

/// Makes an authority and a certificate for this name.
fn certificates(world: &World, name: &str) {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(world.path(""));
        Done::of(&mut command).ok();
    };
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";
    openssl(&format!("req -x509 {new} -keyout ca.key -out ca.pem -subj /CN=test-authority"));
    openssl(&format!(
        "req -x509 -CA ca.pem -CAkey ca.key {new} -keyout own.key -out own.pem -subj /CN=crm \
         -addext subjectAltName={name} -addext basicConstraints=critical,CA:FALSE"
    ));
}

/// A server with that certificate, which creates whatever it is asked for.
fn serve(world: &World) -> SocketAddr {
    let chain = CertificateDer::from_pem_file(world.path("own.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(world.path("own.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("a certificate with its key");
    let (config, listener) =
        (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("a socket"));
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // A client that does not trust us breaks off.
            create(&config, stream).ok();
        }
    });
    address
}

fn create(config: &Arc<ServerConfig>, stream: TcpStream) -> std::io::Result<()> {
    let connection = ServerConnection::new(config.clone()).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(&request).contains("\r\n\r\n{\"for\"") {
        let length = stream.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        request.extend_from_slice(&bytes[..length]);
    }
    stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 13\r\n\r\n{\"id\": \"TLS\"}")?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn world(name: &str) -> World {
    let world = World::bare();
    certificates(&world, name);
    world.write("token", SECRET);
    world
}

#[test]
fn an_authority_of_ones_own_is_trusted_where_it_is_named() {
    if !present("openssl") {
        return;
    }
    let world = world("IP:127.0.0.1");
    let url = format!("https://{}", serve(&world));
    world.configure(&configuration(&url, "mode = \"none\"", "ca_file = \"ca.pem\""));
    let world = world.migrated();
    let _daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    assert_eq!(attempt::<String>(&world, &key, 1, "remote_id"), "TLS");
}

#[test]
fn a_certificate_that_is_not_to_be_trusted_ends_it_before_a_byte_is_sent() {
    if !present("openssl") {
        return;
    }
    // Of an authority that this machine does not know; for another host.
    for (name, more) in
        [("IP:127.0.0.1", "ca_file = \"other.pem\""), ("DNS:crm", "ca_file = \"ca.pem\"")]
    {
        let world = world(name);
        let address = serve(&world);
        if more.contains("other") {
            let other = self::world(name);
            std::fs::copy(other.path("ca.pem"), world.path("other.pem")).expect("a copy");
        }
        let url = format!("https://{address}");
        world.configure(&configuration(&url, "mode = \"none\"", more));
        let world = world.migrated();
        let _daemon = world.serving();
        let key = world.record("case-104");
        until_ended(&world, &key, 1);
        assert_eq!(attempt::<String>(&world, &key, 1, "error_code"), "tls_certificate", "{name}");
        assert!(!attempt::<bool>(&world, &key, 1, "request_sent"));
    }
}

#[test]
fn a_server_without_tls_is_never_spoken_to_in_the_clear() {
    if !present("openssl") {
        return;
    }
    let server = Server::that([answer("200 OK", "", r#"{"id": 1}"#)]);
    let world = world("IP:127.0.0.1");
    let url = format!("https://{}", server.address);
    let more = "ca_file = \"ca.pem\"\nconnect_timeout = \"2s\"";
    world.configure(&configuration(&url, "mode = \"none\"", more));
    let world = world.migrated();
    let _daemon = world.serving();
    let key = world.record("case-104");
    until_ended(&world, &key, 1);
    assert!(!attempt::<bool>(&world, &key, 1, "request_sent"));
    assert_eq!(attempt::<String>(&world, &key, 1, "outcome"), "not_taken");
    assert!(server.seen().iter().all(|request| !request.contains(SECRET)));
}

//! `receiver`: what a receiver is sent, without sending it.

use super::arguments::Global;
use super::{Exit, Failure, Session, no_such_key};
use crate::config;
use crate::jitter::Seed;
use crate::plain;
use crate::receiver::Kind;
use crate::receiver::http::Preview;
use crate::store::Store;
use crate::store::sqlite::Access;
use std::sync::Arc;

pub(super) async fn render(global: &Global, key: &str) -> Result<Exit, Failure> {
    let loaded = config::load(&global.request())?;
    let rules = Arc::new(loaded.settings.rules(Seed::draw()));
    let session = Session::with(global, &loaded, rules, Access::Existing).await?;
    let row = session.store.find(key).await?.ok_or_else(|| no_such_key(key))?;
    let judged = session.rules.judge(&row.recorded, session.now().await?);
    let failed = |why: String| Failure::new(Exit::Failed, why);
    let ready = judged.ready.ok_or_else(|| {
        failed(judged.fault.unwrap_or_else(|| "it cannot be delivered as it is".to_owned()))
    })?;
    let receiver = loaded.settings.receivers.iter().find(|one| one.name == row.receiver);
    let receiver = receiver.ok_or_else(|| failed("its receiver is not configured".to_owned()))?;
    let Kind::Http(http) = &receiver.kind else {
        let why = format!("the receiver {} is not of kind http", receiver.name);
        return Err(failed(why));
    };
    let preview = http
        .preview(&ready.key, &ready.payload)
        .map_err(|error| failed(format!("there is no request for it: {error}")))?;
    session.output.result(&preview, &plain::lines(&text(&preview)))?;
    Ok(Exit::Done)
}

fn text(preview: &Preview) -> String {
    let mut lines = vec![format!("{} {}", preview.method, preview.url)];
    lines.extend(preview.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    if let Some(body) = &preview.body {
        lines.push(String::new());
        lines.push(body.clone());
    }
    lines.join("\n")
}

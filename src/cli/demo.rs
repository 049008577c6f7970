//! `demo` (in work)

use super::output::Output;
use super::{Exit, Failure};

pub(super) async fn demo(_output: Output) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not yet"))
}

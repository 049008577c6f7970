//! What always holds, each law checked from outside: by a second connection to
//! the database, and by what the receivers saw.

pub(crate) mod call;
pub(crate) mod rows;
pub(crate) mod times;

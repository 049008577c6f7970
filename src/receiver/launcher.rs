//! The launcher. (stub to be replaced)

//! The files of the project, and where they may lie.

use std::fs;
use std::path::{Path, PathBuf};

/// What may lie at the top; hidden names are files of tools.
const TOP: &[&str] = &[
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "README.md",
    "config",
    "docs",
    "src",
    "systemd",
    "tests",
];

/// Hidden folders that are part of the project, unlike those of editors and of git.
const TOOL_FOLDERS: &[&str] = &[".cargo", ".ci", ".config", ".github"];

/// One file of the project.
pub(crate) struct File {
    /// From the top of the project, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

impl File {
    /// `None` for a file that holds no text.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }
}

/// Every file of the project, but for what `.gitignore` leaves out.
pub(crate) fn files() -> Vec<File> {
    let mut files = Vec::new();
    for name in top_level() {
        let path = top().join(&name);
        let of_others = name.starts_with('.') && !TOOL_FOLDERS.contains(&name.as_str());
        if name == ".git" || (path.is_dir() && of_others) {
            continue;
        }
        collect(&path, &mut files);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(path: &Path, files: &mut Vec<File>) {
    if path.is_dir() {
        for entry in entries(path) {
            collect(&entry, files);
        }
    } else {
        let relative = path.strip_prefix(top()).expect("it lies below the top");
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        files.push(File { path: relative.to_string_lossy().into_owned(), bytes });
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|entry| entry.expect("the folder can be read").path()).collect()
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names at the top, but for what `.gitignore` leaves out.
/// The text of one file.
pub(crate) fn read(path: &str) -> String {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&all).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn top_level() -> Vec<String> {
    let ignored = fs::read_to_string(top().join(".gitignore")).expect(".gitignore is there");
    let names = entries(top());
    let names = names.iter().filter_map(|path| path.file_name()?.to_str());
    names.filter(|name| !is_ignored(name, &ignored)).map(str::to_owned).collect()
}

/// Only lines such as `/target` are understood, and no others are needed.
fn is_ignored(name: &str, gitignore: &str) -> bool {
    gitignore.lines().any(|line| line.trim_end_matches('/').strip_prefix('/') == Some(name))
}

pub(crate) fn check_top_level(names: &[String]) -> Vec<String> {
    let known = |name: &str| {
        let of_a_tool = name.starts_with('.');
        of_a_tool || name.starts_with("LICENSE-") || TOP.contains(&name)
    };
    let why = "it lies at the top, where a newcomer looks first: put it under `config`, `tests` or \
               `docs`, give it the hidden name of its tool, or, if a program leaves it there, \
               ignore it in .gitignore";
    let stray = names.iter().filter(|name| !known(name));
    stray.map(|name| format!("{name}:1: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_name_at_the_top_is_found() {
        let names = ["src", ".deny.toml", "LICENSE-MIT", "scripts"].map(str::to_owned);
        let stray = check_top_level(&names);
        assert!(stray.len() == 1 && stray[0].starts_with("scripts:1:"), "{stray:?}");
    }

    #[test]
    fn what_git_ignores_is_not_ours() {
        assert!(is_ignored("target", "/target\n/other/\n") && is_ignored("other", "/other/"));
        assert!(!is_ignored("targets", "/target\n"));
    }
}

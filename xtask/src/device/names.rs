//! Names: the resolution of paths in the modules of a crate, and the C++ names of items.

use super::items::Crate;
use super::refusal::{Result, refusal, refuse};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Ident, UseTree};

/// The meaning of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Def {
    Module(usize),
    Struct(usize),
    Enum(usize),
    Alias(usize),
    Function(usize),
    Trait(usize),
    Const(usize),
    Variant(usize, usize),
    /// An item that exists, but is not for the device.
    Host,
}

/// Namespace of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Types,
    Values,
}

/// `use` of one name, or of all names of a module.
pub struct Import {
    segments: Vec<Ident>,
    alias: Option<String>,
}

impl Crate {
    /// Resolves a path in a module.
    pub fn resolve(&self, module: usize, path: &syn::Path, space: Space) -> Result<Def> {
        let segments: Vec<Ident> = path.segments.iter().map(|s| s.ident.clone()).collect();
        match self.lookup(module, &segments, space, 0) {
            Some(Def::Host) => {
                let name: String = spelled(path);
                refuse(
                    path.span(),
                    format!("`{name}` is for the host: its file or item is not in the device subset"),
                )
            }
            Some(def) => Ok(def),
            None => refuse(path.span(), format!("`{}` is not known in the device subset", spelled(path))),
        }
    }

    fn lookup(&self, module: usize, segments: &[Ident], space: Space, depth: usize) -> Option<Def> {
        if depth > 16 {
            return None;
        }
        let (first, rest) = segments.split_first()?;
        let here: Def = match first.to_string().as_str() {
            "crate" => Def::Module(0),
            "self" => Def::Module(module),
            "super" => Def::Module(self.modules[module].parent?),
            _ => {
                let wanted: Space = if rest.is_empty() { space } else { Space::Types };
                self.member(module, first, wanted, depth)?
            }
        };
        let Some((next, more)) = rest.split_first() else { return Some(here) };
        match here {
            Def::Module(inside) => {
                if next == "super" {
                    return self.lookup(inside, rest, space, depth + 1);
                }
                let wanted: Space = if more.is_empty() { space } else { Space::Types };
                match (self.member(inside, next, wanted, depth)?, more.is_empty()) {
                    (def, true) => Some(def),
                    (Def::Module(_) | Def::Enum(_), false) => {
                        let prefix: Def = self.member(inside, next, Space::Types, depth)?;
                        self.below(prefix, more, space, depth)
                    }
                    _ => None,
                }
            }
            other => self.below(other, rest, space, depth),
        }
    }

    fn below(&self, def: Def, rest: &[Ident], space: Space, depth: usize) -> Option<Def> {
        match def {
            Def::Module(inside) => {
                let mut path: Vec<Ident> = vec![Ident::new("self", Span::call_site())];
                path.extend_from_slice(rest);
                self.lookup(inside, &path, space, depth + 1)
            }
            Def::Enum(id) if rest.len() == 1 => {
                let at = self.enums[id].item.variants.iter().position(|v| v.ident == rest[0])?;
                Some(Def::Variant(id, at))
            }
            Def::Host => Some(Def::Host),
            _ => None,
        }
    }

    /// Finds an item of a module, or one that a `use` of the module imports.
    fn member(&self, module: usize, name: &Ident, space: Space, depth: usize) -> Option<Def> {
        let text: String = name.to_string();
        if let Some(def) = self.names[space as usize].get(&(module, text.clone())) {
            return Some(*def);
        }
        for import in &self.imports[module] {
            if import.alias.as_ref() == Some(&text)
                && let Some(def) = self.lookup(module, &import.segments, space, depth + 1)
            {
                return Some(def);
            }
        }
        for import in self.imports[module].iter().filter(|i| i.alias.is_none()) {
            match self.lookup(module, &import.segments, Space::Types, depth + 1) {
                Some(Def::Module(from)) if from != module => {
                    if let Some(def) = self.member(from, name, space, depth + 1) {
                        return Some(def);
                    }
                }
                Some(Def::Enum(id)) => {
                    if let Some(at) = self.enums[id].item.variants.iter().position(|v| v.ident == *name) {
                        return Some(Def::Variant(id, at));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The C++ name of an item, from the namespace of the crate.
    pub fn cpp_path(&self, module: usize, name: &str) -> String {
        let mut parts: Vec<&str> = self.modules[module].path.iter().map(String::as_str).collect();
        let name: String = cpp_name(name);
        if parts.is_empty() {
            parts.push(&self.root);
        }
        parts.push(&name);
        parts.join("::")
    }
}

/// A path as written in the source.
pub fn spelled(path: &syn::Path) -> String {
    path.segments.iter().map(|s| s.ident.to_string()).collect::<Vec<_>>().join("::")
}

/// Adds the names that a `use` imports to `out`. `prefix` is the path before `tree`.
pub fn flatten(tree: &UseTree, prefix: &mut Vec<Ident>, out: &mut Vec<Import>) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.clone());
            flatten(&path.tree, prefix, out);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, prefix, out)),
        UseTree::Glob(_) => out.push(Import { segments: prefix.clone(), alias: None }),
        UseTree::Name(name) if name.ident == "self" => {
            let alias: Option<String> = prefix.last().map(Ident::to_string);
            out.push(Import { segments: prefix.clone(), alias });
        }
        UseTree::Name(name) => push_name(prefix, &name.ident, name.ident.to_string(), out),
        UseTree::Rename(rename) if rename.ident == "self" => {
            out.push(Import { segments: prefix.clone(), alias: Some(rename.rename.to_string()) });
        }
        UseTree::Rename(rename) => push_name(prefix, &rename.ident, rename.rename.to_string(), out),
    }
}

fn push_name(prefix: &[Ident], name: &Ident, alias: String, out: &mut Vec<Import>) {
    let mut segments: Vec<Ident> = prefix.to_vec();
    segments.push(name.clone());
    out.push(Import { segments, alias: Some(alias) });
}

/// Reserved words of C++, and names that the prelude or a C header may define as macros.
const RESERVED: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "bool",
    "case",
    "catch",
    "char",
    "class",
    "compl",
    "concept",
    "constexpr",
    "const_cast",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "explicit",
    "export",
    "far",
    "float",
    "friend",
    "goto",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "near",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "private",
    "protected",
    "public",
    "register",
    "reinterpret_cast",
    "requires",
    "short",
    "signed",
    "sizeof",
    "static_assert",
    "static_cast",
    "switch",
    "template",
    "this",
    "thread_local",
    "throw",
    "try",
    "typedef",
    "typeid",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "xor",
    "xor_eq",
    "linux",
    "unix",
    "errno",
    "stdin",
    "stdout",
    "stderr",
];

/// A Rust name as a C++ name: reserved words get an underscore.
pub fn cpp_name(name: &str) -> String {
    if RESERVED.contains(&name) { format!("{name}_") } else { name.to_string() }
}

/// Refuses a name that another name is translated to.
pub fn check_name(name: &Ident) -> Result<()> {
    let text: String = name.to_string();
    match text.strip_suffix('_') {
        Some(stem) if RESERVED.contains(&stem) => {
            Err(refusal(name.span(), format!("name `{text}`: it stands for `{stem}` in C++")))
        }
        _ => Ok(()),
    }
}

//! The source as modules: what each defines, imports and names, and which file a name leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemUse, Macro, Meta, UseTree, Visibility};

/// The path of a module below the crate's root, which is empty.
type ModulePath = Vec<String>;

/// All modules of a crate. `main.rs` is module `main` of it, which imports the library by its name.
pub(super) struct Tree {
    modules: BTreeMap<ModulePath, Module>,
    crate_name: String,
}

#[derive(Default)]
pub(super) struct Module {
    /// Relative to `src/`.
    pub(super) file: String,
    path: ModulePath,
    /// A name may be a module and a function at once.
    names: BTreeMap<String, Vec<Binding>>,
    globs: Vec<Vec<String>>,
    pub(super) mentions: Vec<Mention>,
}

enum Binding {
    Defined,
    Module,
    Imported(Vec<String>),
}

/// A path that the source has somewhere.
#[derive(Debug, Clone)]
pub(super) struct Mention {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// Only in a test's build.
    pub(super) is_test: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Code, a type, or an import for this module alone.
    Use,
    /// `pub use`: hands a name on without needing it.
    Reexport,
    /// A method's name alone: its type is not known here.
    Method,
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A name of this crate: the file that defines it, and the module that the file is.
    Name { name: String, file: String, module: ModulePath },
    /// A module of this crate as a whole.
    Module(ModulePath),
    /// A path into another crate, or something local that is none of the check's business.
    Foreign(Vec<String>),
}

impl Tree {
    /// Reads every file below `src`.
    pub(super) fn read(src: &Path, crate_name: &str) -> Self {
        let mut files = Vec::new();
        let mut directories = vec![src.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).expect("a folder of the source") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let name = path.strip_prefix(src).expect("a path below it");
                    let name = name.to_str().expect("text").to_owned();
                    files.push((name, fs::read_to_string(&path).expect("text")));
                }
            }
        }
        files.sort();
        Self::parse(files.iter().map(|(name, text)| (&name[..], &text[..])), crate_name)
    }

    /// The crate whose files are these, by their paths relative to `src/`.
    pub(super) fn parse<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
        crate_name: &str,
    ) -> Self {
        let mut tree = Self { modules: BTreeMap::new(), crate_name: crate_name.to_owned() };
        let mut only_in_tests = BTreeSet::new();
        for (name, text) in files {
            let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut reader = Reader {
                file: name.to_owned(),
                modules: vec![Module::new(name, module_path(name))],
                done: Vec::new(),
                tests: 0,
                only_in_tests: &mut only_in_tests,
            };
            reader.visit_file(&file);
            let done = reader.done.into_iter().chain(reader.modules);
            tree.modules.extend(done.map(|module| (module.path.clone(), module)));
        }
        for (path, module) in &mut tree.modules {
            if (0..=path.len()).any(|length| only_in_tests.contains(&path[..length])) {
                module.mentions.iter_mut().for_each(|mention| mention.is_test = true);
            }
        }
        tree
    }

    pub(super) fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    pub(super) fn files(&self) -> BTreeSet<&str> {
        self.modules().map(|module| &module.file[..]).collect()
    }

    /// Where a path that stands in `module` leads to, through all imports and re-exports.
    pub(super) fn resolve(&self, module: &Module, segments: &[String]) -> Target {
        self.follow(&module.path, segments, 0)
    }

    fn follow(&self, from: &[String], segments: &[String], depth: usize) -> Target {
        let mut module = from.to_vec();
        let mut rest = segments;
        while let [first, others @ ..] = rest {
            match &first[..] {
                "crate" => module.clear(),
                name if name == self.crate_name => module.clear(),
                "self" => {}
                "super" => {
                    module.pop();
                }
                _ => break,
            }
            rest = others;
        }
        let is_anchored = rest.len() < segments.len();
        // Imports may lead around in a circle that the compiler resolves otherwise.
        if depth > 32 {
            return Target::Foreign(segments.to_vec());
        }
        loop {
            let [name, others @ ..] = rest else { return Target::Module(module) };
            let found = self.bindings(&module, name);
            let is_module = found.iter().any(|binding| matches!(binding, Binding::Module));
            let is_defined = found.iter().any(|binding| matches!(binding, Binding::Defined));
            let imported = found.iter().find_map(|binding| match binding {
                Binding::Imported(path) => Some(path),
                _ => None,
            });
            // On the way only a module counts; at the end it yields to what has the same name.
            if is_module && (!others.is_empty() || (!is_defined && imported.is_none())) {
                module.push(name.clone());
                rest = others;
                continue;
            }
            if is_defined {
                return self.defined(module, name);
            }
            if let Some(path) = imported {
                let whole = [&path[..], others].concat();
                // `use serde_json;` leads out of the crate by its own name.
                if path[..] == [name.clone()] {
                    return Target::Foreign(whole);
                }
                return self.follow(&module, &whole, depth + 1);
            }
            if let Some(target) = self.through_globs(&module, rest, depth) {
                return target;
            }
            // What a macro defines is not seen; it belongs to its module all the same.
            return if is_anchored || module != from {
                self.defined(module, name)
            } else {
                Target::Foreign(segments.to_vec())
            };
        }
    }

    fn bindings(&self, module: &[String], name: &str) -> &[Binding] {
        let names = self.modules.get(module).map(|module| &module.names);
        names.and_then(|names| names.get(name)).map_or(&[], Vec::as_slice)
    }

    fn through_globs(&self, module: &[String], rest: &[String], depth: usize) -> Option<Target> {
        self.modules.get(module)?.globs.iter().find_map(|glob| {
            match self.follow(module, glob, depth + 1) {
                Target::Module(path) if !self.bindings(&path, &rest[0]).is_empty() => {
                    Some(self.follow(&path, rest, depth + 1))
                }
                _ => None,
            }
        })
    }

    fn defined(&self, module: ModulePath, name: &str) -> Target {
        match self.modules.get(&module) {
            Some(found) => Target::Name { name: name.to_owned(), file: found.file.clone(), module },
            None => Target::Module(module),
        }
    }
}

impl Target {
    /// The top-level module that it is in.
    pub(super) fn room(&self) -> Option<&str> {
        match self {
            Self::Name { module, .. } | Self::Module(module) => module.first().map(String::as_str),
            Self::Foreign(_) => None,
        }
    }
}

impl Module {
    fn new(file: &str, path: ModulePath) -> Self {
        Self { file: file.to_owned(), path, ..Self::default() }
    }

    /// The top-level module that this one belongs to; `lib.rs` has none.
    pub(super) fn room(&self) -> Option<&str> {
        self.path.first().map(String::as_str)
    }

    fn bind(&mut self, name: &str, binding: Binding) {
        self.names.entry(name.to_owned()).or_default().push(binding);
    }
}

fn module_path(file: &str) -> ModulePath {
    let path = file.strip_suffix(".rs").expect("a Rust file");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

/// Reads one file; modules inside it are modules of their own.
struct Reader<'a> {
    file: String,
    /// The one that is being read, last, and those around it.
    modules: Vec<Module>,
    done: Vec<Module>,
    /// How many `#[cfg(test)]` are around what is being read.
    tests: usize,
    only_in_tests: &'a mut BTreeSet<ModulePath>,
}

impl Reader<'_> {
    fn module(&mut self) -> &mut Module {
        self.modules.last_mut().expect("the file's own module")
    }

    fn mention(&mut self, segments: Vec<String>, at: Span, kind: Kind) {
        let is_test = self.tests > 0;
        let line = at.start().line;
        self.module().mentions.push(Mention { segments, line, kind, is_test });
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String], kind: Kind) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident), kind),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix, kind));
            }
            UseTree::Name(name) => self.import_as(&name.ident, &name.ident, prefix, kind),
            UseTree::Rename(rename) => self.import_as(&rename.ident, &rename.rename, prefix, kind),
            UseTree::Glob(glob) => {
                self.mention(prefix.to_vec(), glob.star_token.spans[0], kind);
                self.module().globs.push(prefix.to_vec());
            }
        }
    }

    fn import_as(&mut self, name: &syn::Ident, alias: &syn::Ident, prefix: &[String], kind: Kind) {
        let path =
            if name == "self" { prefix.to_vec() } else { [prefix, &[name.to_string()]].concat() };
        let last = path.last().expect("a name").clone();
        self.mention(path.clone(), name.span(), kind);
        let alias = if alias == "self" { last } else { alias.to_string() };
        if alias != "_" {
            self.module().bind(&alias, Binding::Imported(path));
        }
    }

    /// Paths in what a macro or an attribute is given, whose meaning only it knows.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_colon =
            |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
        let mut at = 0;
        while at < tokens.len() {
            let TokenTree::Ident(first) = &tokens[at] else {
                if let TokenTree::Group(group) = &tokens[at] {
                    self.tokens(group.stream());
                }
                at += 1;
                continue;
            };
            let before = at.checked_sub(1).and_then(|before| match &tokens[before] {
                TokenTree::Punct(punct) => Some(punct.as_char()),
                _ => None,
            });
            let mut segments = vec![first.to_string()];
            at += 1;
            while is_colon(at) && is_colon(at + 1) {
                let Some(TokenTree::Ident(next)) = tokens.get(at + 2) else { break };
                segments.push(next.to_string());
                at += 3;
            }
            let is_called = match tokens.get(at) {
                Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
                Some(TokenTree::Punct(punct)) => punct.as_char() == '!',
                _ => false,
            };
            let is_type = segments[0].starts_with(|letter: char| letter.is_uppercase());
            match before {
                Some('.') if is_called => self.mention(segments, first.span(), Kind::Method),
                // A field, or a lifetime.
                Some('.' | '\'') => {}
                // A single small word is a variable or a field unless it is called.
                _ if segments.len() > 1 || is_called || is_type => {
                    self.mention(segments, first.span(), Kind::Use);
                }
                _ => {}
            }
        }
    }

    fn in_test(&mut self, attributes: &[Attribute], visit: impl FnOnce(&mut Self)) {
        let is_test = usize::from(attributes.iter().any(is_only_for_tests));
        self.tests += is_test;
        visit(self);
        self.tests -= is_test;
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => (&item.attrs, None),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Use(item) => (&item.attrs, None),
            _ => panic!("{}: an item of a kind that the check does not know", self.file),
        };
        if let Some(name) = name {
            self.module().bind(&name.to_string(), Binding::Defined);
        }
        self.in_test(attributes, |reader| visit::visit_item(reader, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        self.module().bind(&name, Binding::Module);
        let path = [&self.module().path[..], &[name]].concat();
        if self.tests > 0 {
            self.only_in_tests.insert(path.clone());
        }
        if item.content.is_some() {
            let inner = Module::new(&self.file, path);
            self.modules.push(inner);
            visit::visit_item_mod(self, item);
            let inner = self.modules.pop().expect("the module that was begun");
            self.done.push(inner);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.in_test(&item.attrs, |reader| visit::visit_impl_item_fn(reader, item));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_private = matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &[], if is_private { Kind::Use } else { Kind::Reexport });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let at = path.segments.first().expect("a path has a segment").ident.span();
        self.mention(segments, at, Kind::Use);
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.mention(vec![call.method.to_string()], call.method.span(), Kind::Method);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.visit_path(&mac.path);
        self.tokens(mac.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    /// `pub(super)` and `pub(in crate::room)` say who may see, and use nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

fn is_only_for_tests(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        Meta::Path(path) => path.is_ident("test"),
        Meta::NameValue(_) => false,
    }
}

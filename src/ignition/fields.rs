//! Which fields the specs have, and since when.
//!
//! One table for spec 3 and one for spec 2, read in both directions: on the way in, what the declared spec does not
//! know is dropped, as Ignition ignores unknown keys ([`super::conform`]); on the way out, what the spec asked for
//! does not know is refused by name, or dropped where it says nothing ([`super::fit`]).
//!
//! Sources: the pages "Configuration Specification v2.0.0" to "v3.6.0" and "Upgrading Configs".

/// A spec as (major, minor), with the two that are read but never served: 2.0 and 2.1.
pub(super) type Spec = (u8, u8);

/// What may stand at a place.
pub(super) enum Shape {
    Text,
    Integer,
    Flag,
    Object(&'static [Field]),
    List(&'static Shape),
}

/// One field of an object.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// The first spec that has it.
    pub(super) since: Spec,
    pub(super) shape: Shape,
    pub(super) idle: Idle,
}

/// The value at which a field says no more than its absence, so that an older spec can do without it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// None: its presence says something.
    Never,
    True,
    False,
    EmptyText,
    /// Whatever its value, the reference server leaves it out.
    Always,
}

impl Field {
    /// This field, which only came with `since`.
    const fn since(self, since: Spec) -> Self {
        Self { since, ..self }
    }

    /// This field, which an older spec can do without when it is `idle`.
    const fn idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }
}

const fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, since: (2, 0), shape, idle: Idle::Never }
}

const fn text(name: &'static str) -> Field {
    field(name, Shape::Text)
}

const fn integer(name: &'static str) -> Field {
    field(name, Shape::Integer)
}

const fn flag(name: &'static str) -> Field {
    field(name, Shape::Flag)
}

const fn texts(name: &'static str) -> Field {
    field(name, Shape::List(&Shape::Text))
}

const fn object(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Shape::Object(fields))
}

const fn objects(name: &'static str, item: &'static Shape) -> Field {
    field(name, Shape::List(item))
}

/// Spec 3, with every field that 3.6 has.
pub(super) mod spec3 {
    use super::{Field, Idle, Shape, Spec, flag, integer, object, objects, text, texts};

    const V3_1: Spec = (3, 1);
    const V3_2: Spec = (3, 2);
    const V3_3: Spec = (3, 3);
    const V3_4: Spec = (3, 4);
    const V3_5: Spec = (3, 5);

    pub(in super::super) static CONFIG: Shape = Shape::Object(&[
        object(
            "ignition",
            &[
                text("version"),
                object(
                    "config",
                    &[objects("merge", &REFERENCE), object("replace", REFERENCE_FIELDS)],
                ),
                object("proxy", &[text("httpProxy"), text("httpsProxy"), texts("noProxy")])
                    .since(V3_1),
                object(
                    "security",
                    &[object("tls", &[objects("certificateAuthorities", &REFERENCE)])],
                ),
                object("timeouts", &[integer("httpResponseHeaders"), integer("httpTotal")]),
            ],
        ),
        object("kernelArguments", &[texts("shouldExist"), texts("shouldNotExist")]).since(V3_3),
        object("passwd", &[objects("groups", &GROUP), objects("users", &USER)]),
        object(
            "storage",
            &[
                objects("directories", &DIRECTORY),
                objects("disks", &DISK),
                objects("files", &FILE),
                objects("filesystems", &FILESYSTEM),
                objects("links", &LINK),
                objects("luks", &LUKS).since(V3_2),
                objects("raid", &RAID),
            ],
        ),
        object("systemd", &[objects("units", &UNIT)]),
    ]);

    const VERIFICATION: &[Field] = &[text("hash")];
    static HEADER: Shape = Shape::Object(&[text("name"), text("value")]);

    /// A config or a certificate authority; before 3.1 neither could be compressed.
    const REFERENCE_FIELDS: &[Field] = &[
        text("compression").since(V3_1),
        objects("httpHeaders", &HEADER).since(V3_1),
        text("source"),
        object("verification", VERIFICATION),
    ];
    static REFERENCE: Shape = Shape::Object(REFERENCE_FIELDS);

    /// The contents of a file.
    const CONTENTS_FIELDS: &[Field] = &[
        text("compression"),
        objects("httpHeaders", &HEADER).since(V3_1),
        text("source"),
        object("verification", VERIFICATION),
    ];
    static CONTENTS: Shape = Shape::Object(CONTENTS_FIELDS);

    static GROUP: Shape = Shape::Object(&[
        text("name"),
        integer("gid"),
        text("passwordHash"),
        flag("shouldExist").since(V3_2).idle(Idle::True),
        flag("system"),
    ]);

    static USER: Shape = Shape::Object(&[
        text("name"),
        text("gecos"),
        texts("groups"),
        text("homeDir"),
        flag("noCreateHome"),
        flag("noLogInit"),
        flag("noUserGroup"),
        text("passwordHash"),
        text("primaryGroup"),
        texts("sshAuthorizedKeys"),
        text("shell"),
        flag("shouldExist").since(V3_2).idle(Idle::True),
        flag("system"),
        integer("uid"),
    ]);

    const OWNER: &[Field] = &[integer("id"), text("name")];

    static DIRECTORY: Shape = Shape::Object(&[
        text("path"),
        object("group", OWNER),
        flag("overwrite"),
        object("user", OWNER),
        integer("mode"),
    ]);

    static FILE: Shape = Shape::Object(&[
        text("path"),
        object("group", OWNER),
        flag("overwrite"),
        object("user", OWNER),
        objects("append", &CONTENTS),
        object("contents", CONTENTS_FIELDS),
        integer("mode"),
    ]);

    static LINK: Shape = Shape::Object(&[
        text("path"),
        object("group", OWNER),
        flag("overwrite"),
        object("user", OWNER),
        flag("hard"),
        text("target"),
    ]);

    static DISK: Shape =
        Shape::Object(&[text("device"), objects("partitions", &PARTITION), flag("wipeTable")]);

    static PARTITION: Shape = Shape::Object(&[
        text("guid"),
        text("label"),
        integer("number"),
        flag("resize").since(V3_2).idle(Idle::False),
        flag("shouldExist"),
        integer("sizeMiB"),
        integer("startMiB"),
        text("typeGuid"),
        flag("wipePartitionEntry"),
    ]);

    static FILESYSTEM: Shape = Shape::Object(&[
        text("device"),
        text("format"),
        text("label"),
        texts("mountOptions").since(V3_1),
        texts("options"),
        text("path"),
        text("uuid"),
        flag("wipeFilesystem"),
    ]);

    static RAID: Shape = Shape::Object(&[
        text("name"),
        texts("devices"),
        text("level"),
        texts("options"),
        integer("spares"),
    ]);

    static LUKS: Shape = Shape::Object(&[
        text("name"),
        object("cex", &[flag("enabled")]).since(V3_5).idle(Idle::Always),
        object(
            "clevis",
            &[
                object("custom", &[text("config"), flag("needsNetwork"), text("pin")]),
                objects("tang", &TANG),
                integer("threshold"),
                flag("tpm2"),
            ],
        ),
        text("device"),
        flag("discard").since(V3_4).idle(Idle::False),
        object("keyFile", CONTENTS_FIELDS),
        text("label"),
        texts("openOptions").since(V3_4),
        texts("options"),
        text("uuid"),
        flag("wipeVolume"),
    ]);

    static TANG: Shape = Shape::Object(&[
        text("advertisement").since(V3_4).idle(Idle::EmptyText),
        text("thumbprint"),
        text("url"),
    ]);

    static UNIT: Shape = Shape::Object(&[
        text("name"),
        text("contents"),
        objects("dropins", &DROPIN),
        flag("enabled"),
        flag("mask"),
    ]);

    static DROPIN: Shape = Shape::Object(&[text("name"), text("contents")]);
}

/// Spec 2, with every field that 2.2 has.
pub(super) mod spec2 {
    use super::{Field, Shape, Spec, flag, integer, object, objects, text, texts};

    const V2_1: Spec = (2, 1);
    const V2_2: Spec = (2, 2);

    pub(in super::super) static CONFIG: Shape = Shape::Object(&[
        object(
            "ignition",
            &[
                object(
                    "config",
                    &[objects("append", &REFERENCE), object("replace", REFERENCE_FIELDS)],
                ),
                object(
                    "security",
                    &[object("tls", &[objects("certificateAuthorities", &REFERENCE)])],
                )
                .since(V2_2),
                object("timeouts", &[integer("httpResponseHeaders"), integer("httpTotal")])
                    .since(V2_1),
                text("version"),
            ],
        ),
        object("networkd", &[objects("units", &NETWORKD_UNIT)]),
        object("passwd", &[objects("groups", &GROUP), objects("users", &USER)]),
        object(
            "storage",
            &[
                objects("directories", &DIRECTORY).since(V2_1),
                objects("disks", &DISK),
                objects("files", &FILE),
                objects("filesystems", &FILESYSTEM),
                objects("links", &LINK).since(V2_1),
                objects("raid", &RAID),
            ],
        ),
        object("systemd", &[objects("units", &UNIT)]),
    ]);

    const VERIFICATION: &[Field] = &[text("hash")];
    const REFERENCE_FIELDS: &[Field] = &[text("source"), object("verification", VERIFICATION)];
    static REFERENCE: Shape = Shape::Object(REFERENCE_FIELDS);

    static NETWORKD_UNIT: Shape =
        Shape::Object(&[text("contents"), objects("dropins", &DROPIN).since(V2_2), text("name")]);

    static GROUP: Shape =
        Shape::Object(&[integer("gid"), text("name"), text("passwordHash"), flag("system")]);

    static USER: Shape = Shape::Object(&[
        object("create", USER_CREATE),
        text("gecos").since(V2_1),
        texts("groups").since(V2_1),
        text("homeDir").since(V2_1),
        text("name"),
        flag("noCreateHome").since(V2_1),
        flag("noLogInit").since(V2_1),
        flag("noUserGroup").since(V2_1),
        text("passwordHash"),
        text("primaryGroup").since(V2_1),
        texts("sshAuthorizedKeys"),
        text("shell").since(V2_1),
        flag("system").since(V2_1),
        integer("uid").since(V2_1),
    ]);

    const USER_CREATE: &[Field] = &[
        text("gecos"),
        texts("groups"),
        text("homeDir"),
        flag("noCreateHome"),
        flag("noLogInit"),
        flag("noUserGroup"),
        text("primaryGroup"),
        text("shell"),
        flag("system"),
        integer("uid"),
    ];

    const OWNER: &[Field] = &[integer("id"), text("name").since(V2_1)];

    static DIRECTORY: Shape = Shape::Object(&[
        text("filesystem"),
        object("group", OWNER),
        flag("overwrite").since(V2_2),
        text("path"),
        object("user", OWNER),
        integer("mode"),
    ]);

    static FILE: Shape = Shape::Object(&[
        text("filesystem"),
        object("group", OWNER),
        flag("overwrite").since(V2_2),
        text("path"),
        object("user", OWNER),
        flag("append").since(V2_2),
        object(
            "contents",
            &[text("compression"), text("source"), object("verification", VERIFICATION)],
        ),
        integer("mode"),
    ]);

    static LINK: Shape = Shape::Object(&[
        text("filesystem"),
        object("group", OWNER),
        flag("overwrite").since(V2_2),
        text("path"),
        object("user", OWNER),
        flag("hard"),
        text("target"),
    ]);

    static DISK: Shape =
        Shape::Object(&[text("device"), objects("partitions", &PARTITION), flag("wipeTable")]);

    static PARTITION: Shape = Shape::Object(&[
        text("guid").since(V2_1),
        text("label"),
        integer("number"),
        integer("size"),
        integer("start"),
        text("typeGuid"),
    ]);

    static FILESYSTEM: Shape = Shape::Object(&[object("mount", MOUNT), text("name"), text("path")]);

    const MOUNT: &[Field] = &[
        object("create", &[flag("force"), texts("options")]),
        text("device"),
        text("format"),
        text("label").since(V2_1),
        texts("options").since(V2_1),
        text("uuid").since(V2_1),
        flag("wipeFilesystem").since(V2_1),
    ];

    static RAID: Shape = Shape::Object(&[
        texts("devices"),
        text("level"),
        text("name"),
        texts("options").since(V2_2),
        integer("spares"),
    ]);

    static UNIT: Shape = Shape::Object(&[
        text("contents"),
        objects("dropins", &DROPIN),
        flag("enable"),
        flag("enabled").since(V2_1),
        flag("mask"),
        text("name"),
    ]);

    static DROPIN: Shape = Shape::Object(&[text("contents"), text("name")]);
}

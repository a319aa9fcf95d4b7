//! The fields of spec 3.

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
                &[
                    objects("merge", &REFERENCE).by(&["source"]),
                    object("replace", REFERENCE_FIELDS),
                ],
            ),
            object("proxy", &[text("httpProxy"), text("httpsProxy"), texts("noProxy")]).since(V3_1),
            object(
                "security",
                &[object("tls", &[objects("certificateAuthorities", &REFERENCE).by(&["source"])])],
            ),
            object("timeouts", &[integer("httpResponseHeaders"), integer("httpTotal")]),
        ],
    ),
    object(
        "kernelArguments",
        &[texts("shouldExist").sharing_keys(), texts("shouldNotExist").sharing_keys()],
    )
    .since(V3_3),
    object(
        "passwd",
        &[objects("groups", &GROUP).by(&["name"]), objects("users", &USER).by(&["name"])],
    ),
    object(
        "storage",
        &[
            objects("directories", &DIRECTORY).by(&["path"]).sharing_keys(),
            objects("disks", &DISK).by(&["device"]),
            objects("files", &FILE).by(&["path"]).sharing_keys(),
            objects("filesystems", &FILESYSTEM).by(&["device"]),
            objects("links", &LINK).by(&["path"]).sharing_keys(),
            objects("luks", &LUKS).by(&["name"]).since(V3_2),
            objects("raid", &RAID).by(&["name"]),
        ],
    ),
    object("systemd", &[objects("units", &UNIT).by(&["name"])]),
]);

const VERIFICATION: &[Field] = &[text("hash")];
static HEADER: Shape = Shape::Object(&[text("name"), text("value")]);

/// A config or a CA; before 3.1 neither could be compressed.
const REFERENCE_FIELDS: &[Field] = &[
    text("compression").since(V3_1),
    objects("httpHeaders", &HEADER).by(&["name"]).removing_without("value").since(V3_1),
    text("source"),
    object("verification", VERIFICATION),
];
static REFERENCE: Shape = Shape::Object(REFERENCE_FIELDS);

/// The contents of a file.
const CONTENTS_FIELDS: &[Field] = &[
    text("compression"),
    objects("httpHeaders", &HEADER).by(&["name"]).removing_without("value").since(V3_1),
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
    objects("append", &CONTENTS).appended(),
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

static DISK: Shape = Shape::Object(&[
    text("device"),
    objects("partitions", &PARTITION).by(&["number", "label"]),
    flag("wipeTable"),
]);

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
    texts("mountOptions").appended().since(V3_1),
    texts("options").appended(),
    text("path"),
    text("uuid"),
    flag("wipeFilesystem"),
]);

static RAID: Shape = Shape::Object(&[
    text("name"),
    texts("devices"),
    text("level"),
    texts("options").appended(),
    integer("spares"),
]);

static LUKS: Shape = Shape::Object(&[
    text("name"),
    object("cex", &[flag("enabled")]).since(V3_5).idle(Idle::Always),
    object(
        "clevis",
        &[
            object("custom", &[text("config"), flag("needsNetwork"), text("pin")]),
            objects("tang", &TANG).by(&["url"]),
            integer("threshold"),
            flag("tpm2"),
        ],
    ),
    text("device"),
    flag("discard").since(V3_4).idle(Idle::False),
    object("keyFile", CONTENTS_FIELDS),
    text("label"),
    texts("openOptions").since(V3_4),
    texts("options").appended(),
    text("uuid"),
    flag("wipeVolume"),
]);

static TANG: Shape =
    Shape::Object(&[text("advertisement").since(V3_4), text("thumbprint"), text("url")]);

static UNIT: Shape = Shape::Object(&[
    text("name"),
    text("contents"),
    objects("dropins", &DROPIN).by(&["name"]),
    flag("enabled"),
    flag("mask"),
]);

static DROPIN: Shape = Shape::Object(&[text("name"), text("contents")]);

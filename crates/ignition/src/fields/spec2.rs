//! The fields of spec 2.

use super::{Field, Shape, Spec, flag, integer, object, objects, text, texts};

const V2_1: Spec = (2, 1);
const V2_2: Spec = (2, 2);

pub(in super::super) static CONFIG: Shape = Shape::Object(&[
    object(
        "ignition",
        &[
            object("config", &[objects("append", &REFERENCE), object("replace", REFERENCE_FIELDS)]),
            object("security", &[object("tls", &[objects("certificateAuthorities", &REFERENCE)])])
                .since(V2_2),
            object("timeouts", &[integer("httpResponseHeaders"), integer("httpTotal")]).since(V2_1),
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

//! Objects of machines with names, read and written. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubernetes::write::{
    Change, Malformed, MergePatch, ObjectName, ObjectWrite, Precondition, SecretWrite,
};
use model::access::machine::MachineStatus;
use model::access::{Token, TokenHash};
use model::objects::{FIRST_BOOT_MACHINE_VERSION, FirstBootMachine, Object, ObjectKind};
use model::pointer_config::{Authorization, PointerConfig};
use serde_json::{Value, json};

use super::super::NAMESPACE;
use crate::certificates::{USER_DATA, managed_name, user_data, user_data_secret};

const KIND: &str = ObjectKind::FIRST_BOOT_MACHINE.name;

/// A machine's object, with the precondition of its writes.
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) precondition: Precondition,
    pub(super) generation: i64,
    /// The machine, or the reason why the object cannot be used.
    pub(super) read: Result<FirstBootMachine, String>,
    pub(super) status: MachineStatus,
    /// The object without its metadata.
    pub(super) data: Value,
}

/// Name of a machine's object in messages; `*` for all.
pub(super) fn machine_object(name: &str) -> ObjectName {
    ObjectName::new(ObjectKind::FIRST_BOOT_MACHINE, NAMESPACE, name)
}

/// Name of the Secret with a machine's pointer config.
pub(super) fn secret_object(machine: &str) -> ObjectName {
    ObjectName::secret(NAMESPACE, &managed_name(machine))
}

/// Reads a machine's object, its data without the metadata. A status that cannot be read is made again.
pub(super) fn machine(metadata: ObjectMeta, data: Value) -> Result<Machine, Malformed> {
    let name = metadata.name.clone().unwrap_or_default();
    let precondition = Precondition::of(&machine_object(&name), &metadata)?;
    let value = json!({
        "apiVersion": FIRST_BOOT_MACHINE_VERSION, "kind": KIND,
        "metadata": {
            "name": name, "annotations": metadata.annotations.unwrap_or_default(),
            "creationTimestamp": metadata.creation_timestamp,
        },
        "spec": data["spec"],
    });
    let read = match Object::from_value(value) {
        Ok(Some(Object::FirstBootMachine(machine))) => Ok(FirstBootMachine::clone(&machine)),
        Ok(_) => Err("is of another kind".to_owned()),
        Err(error) => Err(error.defect().reason),
    };
    let status = serde_json::from_value(data["status"].clone()).unwrap_or_default();
    Ok(Machine {
        name,
        precondition,
        generation: metadata.generation.unwrap_or_default(),
        read,
        status,
        data,
    })
}

impl Machine {
    /// The token in a Secret for `pool` that was made for this very object.
    pub(super) fn token_in(&self, secret: &Secret, pool: &str) -> Option<Token> {
        let is_own = self.owner_of(secret).is_some_and(|it| it.uid == self.precondition.uid);
        let fetches = PointerConfig::read(user_data(secret)).written_fetches();
        let fetch = fetches.into_iter().find(|fetch| fetch.pool == pool).filter(|_| is_own)?;
        let Authorization::Bearer(credential) = fetch.authorization else { return None };
        Token::read(&credential)
    }

    /// The owner of a Secret that was made for a machine of this name.
    pub(super) fn owner_of<'a>(&self, secret: &'a Secret) -> Option<&'a OwnerReference> {
        let mut owners = secret.metadata.owner_references.iter().flatten();
        owners.find(|owner| {
            owner.kind == KIND
                && owner.api_version == FIRST_BOOT_MACHINE_VERSION
                && owner.name == self.name
        })
    }

    /// The write of the Secret with the pointer config `text`. A Secret of an earlier object of this name becomes this one's.
    pub(super) fn secret_write(
        &self,
        present: Option<&Secret>,
        text: Vec<u8>,
    ) -> Result<SecretWrite, Malformed> {
        let object = secret_object(&self.name);
        let change = if let Some(present) = present {
            let precondition = Precondition::of(&object, &present.metadata)?;
            let data = [(USER_DATA, Some(ByteString(text)))].into();
            let patch = MergePatch::new(precondition, BTreeMap::new(), data);
            Change::Patch(patch.owned_by(self.owner()))
        } else {
            let owner_references = Some(vec![self.owner()]);
            let metadata = ObjectMeta { owner_references, ..object.metadata() };
            Change::Create(user_data_secret(metadata, text))
        };
        Ok(ObjectWrite { object, change })
    }

    fn owner(&self) -> OwnerReference {
        let owner = machine_object(&self.name).owner_reference(&self.precondition.uid);
        OwnerReference { controller: Some(true), ..owner }
    }
}

/// Status fields of a token that has just been made or armed again: `use` is removed.
pub(super) fn armed_status(
    machine: &Machine,
    pool: &str,
    token: TokenHash,
    rearm: Option<&str>,
) -> Value {
    let mut status = json!({
        "pool": pool, "tokenSHA256": token, "armings": machine.status.armings + 1, "use": null,
        "state": "Armed",
    });
    if let Some(rearm) = rearm {
        status["rearm"] = rearm.into();
    }
    status
}

//! Users and roles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use revstore_proto::authpb::{self, Permission};

use super::authorize::Access;
use super::password::PasswordHash;
use super::permission::{self, Grants};
use crate::status::EtcdError;

/// The name of the user that must exist before auth is enabled, and of the role that grants all
/// permissions.
const ROOT: &str = "root";

/// All users and roles, and whether auth is enabled.
///
/// The number of users and roles is not limited, because only administrators can add them. The
/// request size limit bounds the size of each.
#[derive(Debug)]
pub(crate) struct AuthStore {
    enabled: bool,
    /// The auth revision. It starts at 1 and increases by 1 with every change (AU-11).
    revision: u64,
    users: BTreeMap<Arc<str>, UserEntry>,
    roles: BTreeMap<String, RoleEntry>,
}

/// A user.
#[derive(Debug)]
struct UserEntry {
    /// `None` for a user that cannot authenticate with a password.
    password: Option<Arc<PasswordHash>>,
    roles: BTreeSet<String>,
    /// The permissions of all roles, updated when the roles change.
    grants: Arc<Grants>,
}

/// A role.
#[derive(Debug, Default)]
struct RoleEntry {
    /// The permissions, sorted by key. Permissions with the same key are in the order in which they
    /// were granted.
    permissions: Vec<Permission>,
}

/// A user with its password hash.
#[derive(Clone, Debug)]
pub(crate) struct StoredPassword {
    pub(crate) user: Arc<str>,
    /// The hash that the password must match.
    pub(crate) hash: Arc<PasswordHash>,
}

impl Default for AuthStore {
    fn default() -> Self {
        Self {
            enabled: false,
            revision: 1,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
        }
    }
}

impl AuthStore {
    /// Returns the store of an earlier node. Names that are not UTF-8 cannot have been stored.
    pub(crate) fn restored(
        users: impl Iterator<Item = authpb::User>,
        roles: impl Iterator<Item = authpb::Role>,
        enabled: bool,
        revision: u64,
    ) -> Self {
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let roles = roles.map(|role| {
            let permissions = role.key_permission;
            (name(&role.name), RoleEntry { permissions })
        });
        let roles: BTreeMap<_, _> = roles.collect();
        let users = users.map(|user| {
            let has_password = !user.options.is_some_and(|options| options.no_password);
            let mut entry = UserEntry {
                password: has_password
                    .then(|| Arc::new(PasswordHash::stored(name(&user.password)))),
                roles: user.roles.into_iter().collect(),
                grants: Arc::default(),
            };
            entry.update_grants(&roles);
            (name(&user.name).into(), entry)
        });
        Self {
            enabled,
            revision,
            users: users.collect(),
            roles,
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Enables auth (AU-1). As in etcd 3.5.16, the auth revision stays the same.
    pub(crate) fn enable(&mut self) -> Result<(), EtcdError> {
        if self.enabled {
            return Ok(());
        }
        let root = self.users.get(ROOT).ok_or(EtcdError::RootUserNotExist)?;
        if !root.grants.is_admin() {
            return Err(EtcdError::RootRoleNotGranted);
        }
        self.enabled = true;
        Ok(())
    }

    /// Disables auth, and returns whether it was enabled (AU-12).
    pub(crate) fn disable(&mut self) -> bool {
        let was_enabled = self.enabled;
        if was_enabled {
            self.enabled = false;
            self.revision += 1;
        }
        was_enabled
    }

    /// Returns the password hash for the authentication of a user (AU-2, AU-3).
    pub(crate) fn stored_password(&self, name: &str) -> Result<StoredPassword, EtcdError> {
        if !self.enabled {
            return Err(EtcdError::AuthNotEnabled);
        }
        let found = self.users.get_key_value(name);
        let (user, entry) = found.ok_or(EtcdError::AuthFailed)?;
        let hash = entry.password.as_ref().ok_or(EtcdError::NoPasswordUser)?;
        Ok(StoredPassword {
            user: user.clone(),
            hash: hash.clone(),
        })
    }

    /// Returns all users in the form in which etcd stores them.
    pub(crate) fn stored_users(&self) -> impl Iterator<Item = authpb::User> {
        self.users.iter().map(|(name, user)| authpb::User {
            name: Bytes::copy_from_slice(name.as_bytes()),
            password: user.password.as_ref().map_or_else(Bytes::new, |hash| {
                Bytes::copy_from_slice(hash.as_str().as_bytes())
            }),
            roles: user.roles.iter().cloned().collect(),
            options: Some(authpb::UserAddOptions {
                no_password: user.password.is_none(),
            }),
        })
    }

    /// Returns all roles in the form in which etcd stores them.
    pub(crate) fn stored_roles(&self) -> impl Iterator<Item = authpb::Role> {
        self.roles.iter().map(|(name, role)| authpb::Role {
            name: Bytes::copy_from_slice(name.as_bytes()),
            key_permission: role.permissions.clone(),
        })
    }

    /// Returns the permissions of a user, if the user exists.
    pub(crate) fn grants(&self, name: &str) -> Option<Arc<Grants>> {
        self.users.get(name).map(|user| user.grants.clone())
    }

    /// Returns the permissions of a client that has proved its name by other means than a simple token.
    pub(crate) fn access(&self, name: Arc<str>) -> Access {
        match self.grants(&name) {
            Some(grants) => Access::User { name, grants },
            None => Access::UnknownUser { name },
        }
    }

    /// Adds a user. Without a password, the user cannot authenticate with a password.
    pub(crate) fn add_user(
        &mut self,
        name: &str,
        password: Option<PasswordHash>,
    ) -> Result<(), EtcdError> {
        if name.is_empty() {
            return Err(EtcdError::UserEmpty);
        }
        if self.users.contains_key(name) {
            return Err(EtcdError::UserExists);
        }
        let user = UserEntry {
            password: password.map(Arc::new),
            roles: BTreeSet::new(),
            grants: Arc::default(),
        };
        self.users.insert(name.into(), user);
        self.revision += 1;
        Ok(())
    }

    /// Deletes a user.
    pub(crate) fn delete_user(&mut self, name: &str) -> Result<(), EtcdError> {
        // AU-10
        if self.enabled && name == ROOT {
            return Err(EtcdError::InvalidAuthManagement);
        }
        self.users.remove(name).ok_or(EtcdError::UserNotFound)?;
        self.revision += 1;
        Ok(())
    }

    /// Changes the password of a user. A user without a password gets no password. The auth
    /// revision increases in both cases.
    pub(crate) fn change_password(
        &mut self,
        name: &str,
        password: PasswordHash,
    ) -> Result<(), EtcdError> {
        let user = self.users.get_mut(name).ok_or(EtcdError::UserNotFound)?;
        if user.password.is_some() {
            user.password = Some(Arc::new(password));
        }
        self.revision += 1;
        Ok(())
    }

    /// Returns the names of all users, sorted (AU-12).
    pub(crate) fn users(&self) -> Vec<String> {
        self.users.keys().map(ToString::to_string).collect()
    }

    /// Returns the names of all roles, sorted (AU-12).
    pub(crate) fn roles(&self) -> Vec<String> {
        self.roles.keys().cloned().collect()
    }

    /// Returns the roles of a user, sorted.
    pub(crate) fn roles_of(&self, name: &str) -> Result<Vec<String>, EtcdError> {
        let user = self.users.get(name).ok_or(EtcdError::UserNotFound)?;
        Ok(user.roles.iter().cloned().collect())
    }

    /// Returns whether a user has a role. The role itself may be absent.
    pub(crate) fn has_role(&self, name: &str, role: &str) -> bool {
        let user = self.users.get(name);
        user.is_some_and(|user| user.roles.contains(role))
    }

    /// Grants a role to a user, and returns whether the user did not have it (AU-12).
    pub(crate) fn grant_role(&mut self, name: &str, role: &str) -> Result<bool, EtcdError> {
        let user = self.users.get_mut(name).ok_or(EtcdError::UserNotFound)?;
        // AU-1: the role `root` may be absent.
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(EtcdError::RoleNotFound);
        }
        let is_new = user.roles.insert(role.to_owned());
        if is_new {
            user.update_grants(&self.roles);
            self.revision += 1;
        }
        Ok(is_new)
    }

    /// Revokes a role from a user.
    pub(crate) fn revoke_role(&mut self, name: &str, role: &str) -> Result<(), EtcdError> {
        // AU-10
        if self.enabled && name == ROOT && role == ROOT {
            return Err(EtcdError::InvalidAuthManagement);
        }
        let user = self.users.get_mut(name).ok_or(EtcdError::UserNotFound)?;
        if !user.roles.remove(role) {
            return Err(EtcdError::RoleNotGranted);
        }
        user.update_grants(&self.roles);
        self.revision += 1;
        Ok(())
    }

    /// Adds a role without permissions.
    pub(crate) fn add_role(&mut self, role: &str) -> Result<(), EtcdError> {
        if role.is_empty() {
            return Err(EtcdError::RoleEmpty);
        }
        if self.roles.contains_key(role) {
            return Err(EtcdError::RoleExists);
        }
        self.roles.insert(role.to_owned(), RoleEntry::default());
        self.revision += 1;
        Ok(())
    }

    /// Deletes a role and revokes it from all users.
    pub(crate) fn delete_role(&mut self, role: &str) -> Result<(), EtcdError> {
        // AU-10
        if self.enabled && role == ROOT {
            return Err(EtcdError::InvalidAuthManagement);
        }
        self.roles.remove(role).ok_or(EtcdError::RoleNotFound)?;
        for user in self.users.values_mut() {
            if user.roles.remove(role) {
                user.update_grants(&self.roles);
            }
        }
        self.revision += 1;
        Ok(())
    }

    /// Returns the permissions of a role.
    pub(crate) fn permissions(&self, role: &str) -> Result<&[Permission], EtcdError> {
        let role = self.roles.get(role).ok_or(EtcdError::RoleNotFound)?;
        Ok(&role.permissions)
    }

    /// Grants a permission to a role. If the role has a permission for the same range, its type is
    /// replaced.
    pub(crate) fn grant_permission(
        &mut self,
        role: &str,
        granted: Option<Permission>,
    ) -> Result<(), EtcdError> {
        let granted = granted.ok_or(EtcdError::PermissionNotGiven)?;
        if !permission::is_valid(&granted) {
            return Err(EtcdError::InvalidAuthManagement);
        }
        let entry = self.roles.get_mut(role).ok_or(EtcdError::RoleNotFound)?;
        let has_same_range = |existing: &&mut Permission| {
            (&existing.key, &existing.range_end) == (&granted.key, &granted.range_end)
        };
        if let Some(existing) = entry.permissions.iter_mut().find(has_same_range) {
            existing.perm_type = granted.perm_type;
        } else {
            let index = entry
                .permissions
                .partition_point(|existing| existing.key <= granted.key);
            entry.permissions.insert(index, detached(&granted));
        }
        self.role_changed(role);
        Ok(())
    }

    /// Revokes the permission of a role for a range.
    pub(crate) fn revoke_permission(
        &mut self,
        role: &str,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), EtcdError> {
        let entry = self.roles.get_mut(role).ok_or(EtcdError::RoleNotFound)?;
        let before = entry.permissions.len();
        entry
            .permissions
            .retain(|existing| existing.key != key || existing.range_end != range_end);
        if entry.permissions.len() == before {
            return Err(EtcdError::PermissionNotGranted);
        }
        self.role_changed(role);
        Ok(())
    }

    /// Updates the permissions of all users with a role, and the auth revision.
    fn role_changed(&mut self, role: &str) {
        for user in self.users.values_mut() {
            if user.roles.contains(role) {
                user.update_grants(&self.roles);
            }
        }
        self.revision += 1;
    }
}

impl UserEntry {
    fn update_grants(&mut self, roles: &BTreeMap<String, RoleEntry>) {
        let grants = if self.roles.contains(ROOT) {
            Grants::of_admin()
        } else {
            let roles = self.roles.iter().filter_map(|role| roles.get(role));
            Grants::of(roles.flat_map(|role| &role.permissions))
        };
        self.grants = Arc::new(grants);
    }
}

/// Returns a copy of a permission from a request. The fields of a request refer to the memory of
/// the whole message, which would otherwise not be freed.
fn detached(permission: &Permission) -> Permission {
    Permission {
        perm_type: permission.perm_type,
        key: Bytes::copy_from_slice(&permission.key),
        range_end: Bytes::copy_from_slice(&permission.range_end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash() -> PasswordHash {
        PasswordHash::of("p", 4).unwrap()
    }

    fn permission(kind: i32, key: &'static str, range_end: &'static str) -> Permission {
        Permission {
            perm_type: kind,
            key: key.into(),
            range_end: range_end.into(),
        }
    }

    /// Returns a store with the user `u`, which has the role `r`.
    fn store() -> AuthStore {
        let mut store = AuthStore::default();
        store.add_user("u", Some(hash())).unwrap();
        store.add_role("r").unwrap();
        store.grant_role("u", "r").unwrap();
        store
    }

    fn enabled_store() -> AuthStore {
        let mut store = store();
        store.add_user("root", Some(hash())).unwrap();
        store.grant_role("root", "root").unwrap();
        store.enable().unwrap();
        store
    }

    /// Applies a change, and checks its result and whether the auth revision increases. `expected`
    /// is whether it increases, or the error.
    fn check(
        store: &mut AuthStore,
        change: impl FnOnce(&mut AuthStore) -> Result<(), EtcdError>,
        expected: Result<bool, EtcdError>,
    ) {
        let before = store.revision();
        let result = change(store).map(|()| store.revision() > before);
        assert_eq!(result, expected);
        assert_eq!(store.revision() - before, u64::from(expected == Ok(true)));
    }

    #[test]
    fn au_1_enable_needs_a_root_user_with_the_root_role() {
        let mut store = AuthStore::default();
        assert_eq!(store.revision(), 1);
        check(
            &mut store,
            AuthStore::enable,
            Err(EtcdError::RootUserNotExist),
        );
        store.add_user("root", Some(hash())).unwrap();
        check(
            &mut store,
            AuthStore::enable,
            Err(EtcdError::RootRoleNotGranted),
        );
        store.grant_role("root", "root").unwrap();
        check(&mut store, AuthStore::enable, Ok(false));
        check(&mut store, AuthStore::enable, Ok(false));
        assert!(store.is_enabled() && store.roles().is_empty());
        let mut disable = |expected| {
            let disable = |store: &mut AuthStore| {
                store.disable();
                Ok(())
            };
            check(&mut store, disable, expected);
        };
        disable(Ok(true));
        disable(Ok(false));
    }

    #[test]
    fn au_3_authentication_needs_a_user_with_a_password() {
        let mut store = store();
        store.add_user("n", None).unwrap();
        assert_eq!(
            store.stored_password("u").unwrap_err(),
            EtcdError::AuthNotEnabled
        );
        let mut store = enabled_store();
        store.add_user("n", None).unwrap();
        assert!(store.stored_password("u").unwrap().hash.matches("p"));
        assert_eq!(
            store.stored_password("x").unwrap_err(),
            EtcdError::AuthFailed
        );
        assert_eq!(
            store.stored_password("").unwrap_err(),
            EtcdError::AuthFailed
        );
        assert_eq!(
            store.stored_password("n").unwrap_err(),
            EtcdError::NoPasswordUser
        );
        check(
            &mut store,
            |store| store.change_password("n", hash()),
            Ok(true),
        );
        assert_eq!(
            store.stored_password("n").unwrap_err(),
            EtcdError::NoPasswordUser
        );
    }

    #[test]
    fn adding_an_existing_user_and_deleting_an_unknown_user_fails() {
        let store = &mut store();
        check(
            store,
            |store| store.add_user("", None),
            Err(EtcdError::UserEmpty),
        );
        check(
            store,
            |store| store.add_user("u", None),
            Err(EtcdError::UserExists),
        );
        check(store, |store| store.add_user("a", None), Ok(true));
        assert_eq!(store.users(), ["a", "u"]);
        check(store, |store| store.delete_user("a"), Ok(true));
        check(
            store,
            |store| store.delete_user("a"),
            Err(EtcdError::UserNotFound),
        );
        let change = |store: &mut AuthStore| store.change_password("a", hash());
        check(store, change, Err(EtcdError::UserNotFound));
        assert_eq!(store.roles_of("a"), Err(EtcdError::UserNotFound));
    }

    #[test]
    fn au_12_granting_a_role_again_changes_nothing_and_revoking_it_again_fails() {
        let store = &mut store();
        check(
            store,
            |store| store.grant_role("u", "r").map(drop),
            Ok(false),
        );
        check(
            store,
            |store| store.grant_role("u", "x").map(drop),
            Err(EtcdError::RoleNotFound),
        );
        check(
            store,
            |store| store.grant_role("x", "y").map(drop),
            Err(EtcdError::UserNotFound),
        );
        check(
            store,
            |store| store.revoke_role("u", "x"),
            Err(EtcdError::RoleNotGranted),
        );
        check(
            store,
            |store| store.revoke_role("x", "r"),
            Err(EtcdError::UserNotFound),
        );
        assert!(store.has_role("u", "r") && !store.has_role("u", "x") && !store.has_role("x", "r"));
        check(store, |store| store.revoke_role("u", "r"), Ok(true));
        assert_eq!(store.roles_of("u").unwrap(), [""; 0]);
    }

    #[test]
    fn deleting_a_role_revokes_it_from_its_users() {
        let store = &mut store();
        store
            .grant_permission("r", Some(permission(0, "k", "")))
            .unwrap();
        assert!(store.grants("u").unwrap().may_read(b"k", b""));
        check(store, |store| store.add_role(""), Err(EtcdError::RoleEmpty));
        check(
            store,
            |store| store.add_role("r"),
            Err(EtcdError::RoleExists),
        );
        check(store, |store| store.delete_role("r"), Ok(true));
        check(
            store,
            |store| store.delete_role("r"),
            Err(EtcdError::RoleNotFound),
        );
        assert!(!store.has_role("u", "r") && !store.grants("u").unwrap().may_read(b"k", b""));
        assert_eq!(store.permissions("r").unwrap_err(), EtcdError::RoleNotFound);
    }

    /// The order is that of etcd 3.5.16.
    #[test]
    fn permissions_are_sorted_by_key_and_replaced_for_the_same_range() {
        let store = &mut store();
        for (kind, key, end) in [
            (0, "z", "\0"),
            (9, "t", ""),
            (0, "a", "c"),
            (1, "a", "c"),
            (0, "a", ""),
        ] {
            let granted = Some(permission(kind, key, end));
            check(
                store,
                |store| store.grant_permission("r", granted),
                Ok(true),
            );
        }
        let listed = [(1, "a", "c"), (0, "a", ""), (9, "t", ""), (0, "z", "\0")];
        let listed: Vec<_> = listed
            .into_iter()
            .map(|(kind, key, end)| permission(kind, key, end))
            .collect();
        assert_eq!(store.permissions("r").unwrap(), listed);
        let grants = store.grants("u").unwrap();
        assert!(grants.may_write(b"b", b"") && !grants.may_read(b"b", b""));
        check(
            store,
            |store| store.revoke_permission("r", b"a", b""),
            Ok(true),
        );
        let revoke = |store: &mut AuthStore| store.revoke_permission("r", b"a", b"");
        check(store, revoke, Err(EtcdError::PermissionNotGranted));
        let revoke = |store: &mut AuthStore| store.revoke_permission("x", b"a", b"");
        check(store, revoke, Err(EtcdError::RoleNotFound));
        assert_eq!(store.permissions("r").unwrap().len(), 3);
    }

    #[test]
    fn a_grant_needs_a_permission_with_a_valid_range() {
        let store = &mut store();
        for (role, granted, expected) in [
            ("r", None, EtcdError::PermissionNotGiven),
            ("x", None, EtcdError::PermissionNotGiven),
            (
                "r",
                Some(permission(0, "b", "a")),
                EtcdError::InvalidAuthManagement,
            ),
            (
                "r",
                Some(permission(0, "", "")),
                EtcdError::InvalidAuthManagement,
            ),
            ("x", Some(permission(0, "a", "")), EtcdError::RoleNotFound),
        ] {
            check(
                store,
                |store| store.grant_permission(role, granted),
                Err(expected),
            );
        }
    }

    #[test]
    fn au_10_root_user_and_root_role_cannot_be_removed_while_auth_is_enabled() {
        let rejected = Err(EtcdError::InvalidAuthManagement);
        let store = &mut enabled_store();
        check(store, |store| store.delete_user("root"), rejected);
        check(store, |store| store.revoke_role("root", "root"), rejected);
        check(store, |store| store.delete_role("root"), rejected);
        store.grant_role("u", "root").unwrap();
        assert!(store.grants("u").unwrap().is_admin());
        check(store, |store| store.revoke_role("u", "root"), Ok(true));
        assert!(!store.grants("u").unwrap().is_admin());
        store.disable();
        check(store, |store| store.revoke_role("root", "root"), Ok(true));
        check(
            store,
            |store| store.delete_role("root"),
            Err(EtcdError::RoleNotFound),
        );
        check(store, |store| store.delete_user("root"), Ok(true));
    }
}

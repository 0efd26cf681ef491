//! Users and roles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use revstore_proto::authpb::{self, Permission};

use super::password::PasswordHash;
use super::permission::{self, Grants};
use crate::status::EtcdError;

/// The user without whom nobody could manage the others, and the role that makes an administrator.
const ROOT: &str = "root";

/// All users and roles, and whether they count.
///
/// Whoever may change them is an administrator, so nothing bounds their number but what one request
/// may hold.
#[derive(Debug)]
pub(crate) struct AuthStore {
    enabled: bool,
    /// AU-11: from 1 on, one more with every change.
    revision: u64,
    users: BTreeMap<Arc<str>, User>,
    roles: BTreeMap<String, Role>,
}

#[derive(Debug)]
struct User {
    /// Nothing for a user that does not log in by password.
    password: Option<Arc<PasswordHash>>,
    roles: BTreeSet<String>,
    /// What the roles allow together; made anew when they change.
    grants: Arc<Grants>,
}

/// Permissions by key, and in the order in which they were given where keys are equal.
#[derive(Debug, Default)]
struct Role {
    permissions: Vec<Permission>,
}

/// Somebody who wants to log in.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: Arc<str>,
    /// What the password must match.
    pub(crate) password: Arc<PasswordHash>,
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
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// AU-1. As etcd 3.5.16 has it, this is no change that counts.
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

    /// AU-12: nothing happens if it is off.
    pub(crate) fn disable(&mut self) {
        if self.enabled {
            self.enabled = false;
            self.revision += 1;
        }
    }

    /// AU-2, AU-3.
    pub(crate) fn login(&self, name: &str) -> Result<Login, EtcdError> {
        if !self.enabled {
            return Err(EtcdError::AuthNotEnabled);
        }
        let found = self.users.get_key_value(name);
        let (user, known) = found.ok_or(EtcdError::AuthFailed)?;
        let password = known.password.as_ref().ok_or(EtcdError::NoPasswordUser)?;
        Ok(Login {
            user: user.clone(),
            password: password.clone(),
        })
    }

    /// All users as etcd stores them.
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

    /// All roles as etcd stores them.
    pub(crate) fn stored_roles(&self) -> impl Iterator<Item = authpb::Role> {
        self.roles.iter().map(|(name, role)| authpb::Role {
            name: Bytes::copy_from_slice(name.as_bytes()),
            key_permission: role.permissions.clone(),
        })
    }

    /// What a user may, if there is such a user.
    pub(crate) fn grants(&self, name: &str) -> Option<Arc<Grants>> {
        self.users.get(name).map(|user| user.grants.clone())
    }

    /// Adds a user, who logs in by password only if there is one.
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
        let user = User {
            password: password.map(Arc::new),
            roles: BTreeSet::new(),
            grants: Arc::default(),
        };
        self.users.insert(name.into(), user);
        self.revision += 1;
        Ok(())
    }

    pub(crate) fn delete_user(&mut self, name: &str) -> Result<(), EtcdError> {
        // AU-10
        if self.enabled && name == ROOT {
            return Err(EtcdError::InvalidAuthManagement);
        }
        self.users.remove(name).ok_or(EtcdError::UserNotFound)?;
        self.revision += 1;
        Ok(())
    }

    /// Sets a password. A user without any goes on without, and it counts all the same.
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

    /// AU-12: sorted.
    pub(crate) fn users(&self) -> Vec<String> {
        self.users.keys().map(ToString::to_string).collect()
    }

    /// AU-12: sorted.
    pub(crate) fn roles(&self) -> Vec<String> {
        self.roles.keys().cloned().collect()
    }

    pub(crate) fn roles_of(&self, name: &str) -> Result<Vec<String>, EtcdError> {
        let user = self.users.get(name).ok_or(EtcdError::UserNotFound)?;
        Ok(user.roles.iter().cloned().collect())
    }

    /// Whether a user has a role, be it one that does not exist.
    pub(crate) fn has_role(&self, name: &str, role: &str) -> bool {
        let user = self.users.get(name);
        user.is_some_and(|user| user.roles.contains(role))
    }

    /// AU-12: a role that the user has already is granted again without a change.
    pub(crate) fn grant_role(&mut self, name: &str, role: &str) -> Result<(), EtcdError> {
        let user = self.users.get_mut(name).ok_or(EtcdError::UserNotFound)?;
        // AU-1: role `root` need not exist.
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(EtcdError::RoleNotFound);
        }
        if user.roles.insert(role.to_owned()) {
            user.renew_grants(&self.roles);
            self.revision += 1;
        }
        Ok(())
    }

    pub(crate) fn revoke_role(&mut self, name: &str, role: &str) -> Result<(), EtcdError> {
        // AU-10
        if self.enabled && name == ROOT && role == ROOT {
            return Err(EtcdError::InvalidAuthManagement);
        }
        let user = self.users.get_mut(name).ok_or(EtcdError::UserNotFound)?;
        if !user.roles.remove(role) {
            return Err(EtcdError::RoleNotGranted);
        }
        user.renew_grants(&self.roles);
        self.revision += 1;
        Ok(())
    }

    pub(crate) fn add_role(&mut self, role: &str) -> Result<(), EtcdError> {
        if role.is_empty() {
            return Err(EtcdError::RoleEmpty);
        }
        if self.roles.contains_key(role) {
            return Err(EtcdError::RoleExists);
        }
        self.roles.insert(role.to_owned(), Role::default());
        self.revision += 1;
        Ok(())
    }

    /// Deletes a role, and takes it from the users that have it.
    pub(crate) fn delete_role(&mut self, role: &str) -> Result<(), EtcdError> {
        // AU-10
        if self.enabled && role == ROOT {
            return Err(EtcdError::InvalidAuthManagement);
        }
        self.roles.remove(role).ok_or(EtcdError::RoleNotFound)?;
        for user in self.users.values_mut() {
            if user.roles.remove(role) {
                user.renew_grants(&self.roles);
            }
        }
        self.revision += 1;
        Ok(())
    }

    pub(crate) fn permissions(&self, role: &str) -> Result<&[Permission], EtcdError> {
        let role = self.roles.get(role).ok_or(EtcdError::RoleNotFound)?;
        Ok(&role.permissions)
    }

    /// Gives a role a permission; the kind of one on the same keys is replaced.
    pub(crate) fn grant_permission(
        &mut self,
        role: &str,
        granted: Option<Permission>,
    ) -> Result<(), EtcdError> {
        let granted = granted.ok_or(EtcdError::PermissionNotGiven)?;
        if !permission::is_valid(&granted) {
            return Err(EtcdError::InvalidAuthManagement);
        }
        let known = self.roles.get_mut(role).ok_or(EtcdError::RoleNotFound)?;
        let same = |known: &&mut Permission| {
            (&known.key, &known.range_end) == (&granted.key, &granted.range_end)
        };
        if let Some(known) = known.permissions.iter_mut().find(same) {
            known.perm_type = granted.perm_type;
        } else {
            let behind = known
                .permissions
                .partition_point(|known| known.key <= granted.key);
            known.permissions.insert(behind, own(&granted));
        }
        self.changed_role(role);
        Ok(())
    }

    pub(crate) fn revoke_permission(
        &mut self,
        role: &str,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), EtcdError> {
        let known = self.roles.get_mut(role).ok_or(EtcdError::RoleNotFound)?;
        let before = known.permissions.len();
        known
            .permissions
            .retain(|known| known.key != key || known.range_end != range_end);
        if known.permissions.len() == before {
            return Err(EtcdError::PermissionNotGranted);
        }
        self.changed_role(role);
        Ok(())
    }

    fn changed_role(&mut self, role: &str) {
        for user in self.users.values_mut() {
            if user.roles.contains(role) {
                user.renew_grants(&self.roles);
            }
        }
        self.revision += 1;
    }
}

impl User {
    fn renew_grants(&mut self, roles: &BTreeMap<String, Role>) {
        let grants = if self.roles.contains(ROOT) {
            Grants::of_admin()
        } else {
            let roles = self.roles.iter().filter_map(|role| roles.get(role));
            Grants::of(roles.flat_map(|role| &role.permissions))
        };
        self.grants = Arc::new(grants);
    }
}

/// Bytes of a request are slices of the whole message; what is kept is kept alone.
fn own(permission: &Permission) -> Permission {
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

    /// A store with user `u`, who has role `r`.
    fn store() -> AuthStore {
        let mut store = AuthStore::default();
        store.add_user("u", Some(hash())).unwrap();
        store.add_role("r").unwrap();
        store.grant_role("u", "r").unwrap();
        store
    }

    fn enabled() -> AuthStore {
        let mut store = store();
        store.add_user("root", Some(hash())).unwrap();
        store.grant_role("root", "root").unwrap();
        store.enable().unwrap();
        store
    }

    /// Does something, and checks what comes of it and whether it counts as a change.
    fn check(
        store: &mut AuthStore,
        change: impl FnOnce(&mut AuthStore) -> Result<(), EtcdError>,
        expected: Result<bool, EtcdError>,
    ) {
        let before = store.revision();
        let done = change(store).map(|()| store.revision() > before);
        assert_eq!(done, expected);
        assert_eq!(store.revision() - before, u64::from(expected == Ok(true)));
    }

    #[test]
    fn au_1_root_comes_first() {
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
    fn au_3_logins_need_a_user_with_a_password() {
        let mut store = store();
        store.add_user("n", None).unwrap();
        assert_eq!(store.login("u").unwrap_err(), EtcdError::AuthNotEnabled);
        let mut store = enabled();
        store.add_user("n", None).unwrap();
        assert!(store.login("u").unwrap().password.matches("p"));
        assert_eq!(store.login("x").unwrap_err(), EtcdError::AuthFailed);
        assert_eq!(store.login("").unwrap_err(), EtcdError::AuthFailed);
        assert_eq!(store.login("n").unwrap_err(), EtcdError::NoPasswordUser);
        check(
            &mut store,
            |store| store.change_password("n", hash()),
            Ok(true),
        );
        assert_eq!(store.login("n").unwrap_err(), EtcdError::NoPasswordUser);
    }

    #[test]
    fn users_are_added_once_and_deleted_once() {
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
    fn au_12_roles_are_granted_once_and_revoked_once() {
        let store = &mut store();
        check(store, |store| store.grant_role("u", "r"), Ok(false));
        check(
            store,
            |store| store.grant_role("u", "x"),
            Err(EtcdError::RoleNotFound),
        );
        check(
            store,
            |store| store.grant_role("x", "y"),
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
    fn a_role_that_is_deleted_is_taken_from_its_users() {
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

    /// As etcd 3.5.16 lists them.
    #[test]
    fn permissions_are_listed_by_key_and_replaced_for_the_same_keys() {
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
    fn permissions_must_be_given_and_name_keys() {
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
    fn au_10_what_auth_stands_on_stays_while_it_is_on() {
        let refused = Err(EtcdError::InvalidAuthManagement);
        let store = &mut enabled();
        check(store, |store| store.delete_user("root"), refused);
        check(store, |store| store.revoke_role("root", "root"), refused);
        check(store, |store| store.delete_role("root"), refused);
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

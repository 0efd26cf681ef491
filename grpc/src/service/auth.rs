//! The Auth service: the calls that change and list users and roles.

use std::sync::Arc;

use prost::Message;
use revstore_proto::etcdserverpb::auth_server::Auth;
use revstore_proto::etcdserverpb::{
    AuthDisableRequest, AuthDisableResponse, AuthEnableRequest, AuthEnableResponse,
    AuthRoleAddRequest, AuthRoleAddResponse, AuthRoleDeleteRequest, AuthRoleDeleteResponse,
    AuthRoleGetRequest, AuthRoleGetResponse, AuthRoleGrantPermissionRequest,
    AuthRoleGrantPermissionResponse, AuthRoleListRequest, AuthRoleListResponse,
    AuthRoleRevokePermissionRequest, AuthRoleRevokePermissionResponse, AuthStatusRequest,
    AuthStatusResponse, AuthUserAddRequest, AuthUserAddResponse, AuthUserChangePasswordRequest,
    AuthUserChangePasswordResponse, AuthUserDeleteRequest, AuthUserDeleteResponse,
    AuthUserGetRequest, AuthUserGetResponse, AuthUserGrantRoleRequest, AuthUserGrantRoleResponse,
    AuthUserListRequest, AuthUserListResponse, AuthUserRevokeRoleRequest,
    AuthUserRevokeRoleResponse, AuthenticateRequest, AuthenticateResponse, ResponseHeader,
};
use tonic::{Request, Response, Status};

use crate::auth::{AuthStore, log};
use crate::methods::{self, Call};
use crate::node::Node;
use crate::status::EtcdError;

/// `etcdserverpb.Auth`; etcd's `AuthServer`. No call changes the revision of the keys (AU-11).
#[derive(Debug)]
pub(crate) struct AuthService {
    node: Arc<Node>,
}

impl AuthService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// Validates, authorizes and admits a request.
    fn admit<C: Call<Request: Message>>(
        &self,
        request: Request<C::Request>,
    ) -> Result<C::Request, Status> {
        let request = self.node.accept::<C>(request)?;
        self.node.admit_auth(request.encoded_len())?;
        Ok(request)
    }

    /// Admits a request, applies it to the users and roles, and logs the result.
    fn change<C: Call<Request: Message>, T>(
        &self,
        request: Request<C::Request>,
        change: impl FnOnce(&mut AuthStore, &C::Request) -> Result<T, EtcdError>,
        log: impl FnOnce(&C::Request, Result<T, EtcdError>),
    ) -> Result<Option<ResponseHeader>, Status> {
        let request = self.admit::<C>(request)?;
        let changed = self.node.auth.change(|store| change(store, &request));
        let error = changed.as_ref().err().copied();
        log(&request, changed);
        match error {
            Some(error) => Err(error.to_status()),
            None => Ok(self.header()),
        }
    }

    async fn authenticate_user(&self, request: AuthenticateRequest) -> Result<String, EtcdError> {
        let node = &*self.node;
        // etcd proposes an authentication after it has checked the password (DM-13). The proposal
        // contains the token, so the token contains the index before the proposal.
        let admit = || Ok((node.admit_auth(request.encoded_len())?, node.engine.now()));
        let password = request.password.clone();
        let token = node.auth.authenticate(&request.name, password, admit).await;
        token.inspect_err(|error| log::invalid_authentication(&request.name, *error))
    }

    async fn add_user(&self, request: AuthUserAddRequest) -> Result<(), EtcdError> {
        let has_password = !request.options.is_some_and(|options| options.no_password);
        let password = if has_password {
            Some(self.node.auth.hash_password(request.password).await?)
        } else {
            None
        };
        let auth = &self.node.auth;
        auth.change(|store| store.add_user(&request.name, password))?;
        log::added_user(&request.name);
        Ok(())
    }

    async fn change_password(
        &self,
        request: AuthUserChangePasswordRequest,
    ) -> Result<(), EtcdError> {
        let (auth, name) = (&self.node.auth, &request.name);
        let password = auth.hash_password(request.password).await?;
        let change = |store: &mut AuthStore| store.change_password(name, password);
        let roles = auth.change_and_invalidate_tokens(name, change)?;
        log::changed_password(name, &roles);
        Ok(())
    }

    fn delete_user(&self, request: &AuthUserDeleteRequest) -> Result<(), EtcdError> {
        let (auth, name) = (&self.node.auth, &request.name);
        match auth.change_and_invalidate_tokens(name, |store| store.delete_user(name)) {
            Ok(roles) => {
                log::deleted_user(name, &roles);
                Ok(())
            }
            Err(error) => {
                if error == EtcdError::InvalidAuthManagement {
                    log::cannot_delete_root();
                }
                Err(error)
            }
        }
    }

    /// DM-25
    #[expect(
        clippy::unnecessary_wraps,
        reason = "responses have an optional header"
    )]
    fn header(&self) -> Option<ResponseHeader> {
        Some(self.node.current_header())
    }
}

#[tonic::async_trait]
impl Auth for AuthService {
    async fn auth_enable(
        &self,
        request: Request<AuthEnableRequest>,
    ) -> Result<Response<AuthEnableResponse>, Status> {
        let header = self.change::<methods::auth::AuthEnable, _>(
            request,
            |store, _| {
                let was_enabled = store.is_enabled();
                store.enable().map(|()| was_enabled)
            },
            |_, enabled| {
                let _ = enabled.map(log::enabled);
            },
        )?;
        Ok(Response::new(AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<AuthDisableRequest>,
    ) -> Result<Response<AuthDisableResponse>, Status> {
        let header = self.change::<methods::auth::AuthDisable, _>(
            request,
            |store, _| Ok(store.disable()),
            |_, disabled| {
                let _ = disabled.map(log::disabled);
            },
        )?;
        Ok(Response::new(AuthDisableResponse { header }))
    }

    async fn auth_status(
        &self,
        request: Request<AuthStatusRequest>,
    ) -> Result<Response<AuthStatusResponse>, Status> {
        self.admit::<methods::auth::AuthStatus>(request)?;
        let (enabled, auth_revision) =
            (self.node.auth).read(|store| (store.is_enabled(), store.revision()));
        Ok(Response::new(AuthStatusResponse {
            header: self.header(),
            enabled,
            auth_revision,
        }))
    }

    async fn authenticate(
        &self,
        request: Request<AuthenticateRequest>,
    ) -> Result<Response<AuthenticateResponse>, Status> {
        let request = self.node.accept::<methods::auth::Authenticate>(request)?;
        let token = self.authenticate_user(request).await?;
        Ok(Response::new(AuthenticateResponse {
            header: self.header(),
            token,
        }))
    }

    async fn user_add(
        &self,
        request: Request<AuthUserAddRequest>,
    ) -> Result<Response<AuthUserAddResponse>, Status> {
        let request = self.admit::<methods::auth::UserAdd>(request)?;
        self.add_user(request).await?;
        Ok(Response::new(AuthUserAddResponse {
            header: self.header(),
        }))
    }

    async fn user_get(
        &self,
        request: Request<AuthUserGetRequest>,
    ) -> Result<Response<AuthUserGetResponse>, Status> {
        let request = self.admit::<methods::auth::UserGet>(request)?;
        let roles = self.node.auth.read(|store| store.roles_of(&request.name))?;
        Ok(Response::new(AuthUserGetResponse {
            header: self.header(),
            roles,
        }))
    }

    async fn user_list(
        &self,
        request: Request<AuthUserListRequest>,
    ) -> Result<Response<AuthUserListResponse>, Status> {
        self.admit::<methods::auth::UserList>(request)?;
        Ok(Response::new(AuthUserListResponse {
            header: self.header(),
            users: self.node.auth.read(AuthStore::users),
        }))
    }

    async fn user_delete(
        &self,
        request: Request<AuthUserDeleteRequest>,
    ) -> Result<Response<AuthUserDeleteResponse>, Status> {
        let request = self.admit::<methods::auth::UserDelete>(request)?;
        self.delete_user(&request)?;
        Ok(Response::new(AuthUserDeleteResponse {
            header: self.header(),
        }))
    }

    async fn user_change_password(
        &self,
        request: Request<AuthUserChangePasswordRequest>,
    ) -> Result<Response<AuthUserChangePasswordResponse>, Status> {
        let request = self.admit::<methods::auth::UserChangePassword>(request)?;
        self.change_password(request).await?;
        Ok(Response::new(AuthUserChangePasswordResponse {
            header: self.header(),
        }))
    }

    async fn user_grant_role(
        &self,
        request: Request<AuthUserGrantRoleRequest>,
    ) -> Result<Response<AuthUserGrantRoleResponse>, Status> {
        let header = self.change::<methods::auth::UserGrantRole, _>(
            request,
            |store, request| {
                let is_new = store.grant_role(&request.user, &request.role)?;
                Ok((is_new, store.roles_of(&request.user)?))
            },
            |request, granted| {
                if let Ok((is_new, roles)) = granted {
                    log::granted_role(&request.user, &roles, &request.role, is_new);
                }
            },
        )?;
        Ok(Response::new(AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<AuthUserRevokeRoleRequest>,
    ) -> Result<Response<AuthUserRevokeRoleResponse>, Status> {
        let header = self.change::<methods::auth::UserRevokeRole, _>(
            request,
            |store, request| {
                let old = store.roles_of(&request.name).unwrap_or_default();
                store.revoke_role(&request.name, &request.role)?;
                Ok((old, store.roles_of(&request.name)?))
            },
            |request, revoked| match revoked {
                Ok((old, new)) => log::revoked_role(&request.name, &old, &new, &request.role),
                Err(EtcdError::InvalidAuthManagement) => log::cannot_revoke_root(),
                Err(_) => {}
            },
        )?;
        Ok(Response::new(AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<AuthRoleAddRequest>,
    ) -> Result<Response<AuthRoleAddResponse>, Status> {
        let header = self.change::<methods::auth::RoleAdd, _>(
            request,
            |store, request| store.add_role(&request.name),
            |request, added| {
                if added.is_ok() {
                    log::created_role(&request.name);
                }
            },
        )?;
        Ok(Response::new(AuthRoleAddResponse { header }))
    }

    async fn role_get(
        &self,
        request: Request<AuthRoleGetRequest>,
    ) -> Result<Response<AuthRoleGetResponse>, Status> {
        let request = self.admit::<methods::auth::RoleGet>(request)?;
        let perm =
            (self.node.auth).read(|store| store.permissions(&request.role).map(<[_]>::to_vec))?;
        Ok(Response::new(AuthRoleGetResponse {
            header: self.header(),
            perm,
        }))
    }

    async fn role_list(
        &self,
        request: Request<AuthRoleListRequest>,
    ) -> Result<Response<AuthRoleListResponse>, Status> {
        self.admit::<methods::auth::RoleList>(request)?;
        Ok(Response::new(AuthRoleListResponse {
            header: self.header(),
            roles: self.node.auth.read(AuthStore::roles),
        }))
    }

    async fn role_delete(
        &self,
        request: Request<AuthRoleDeleteRequest>,
    ) -> Result<Response<AuthRoleDeleteResponse>, Status> {
        let header = self.change::<methods::auth::RoleDelete, _>(
            request,
            |store, request| store.delete_role(&request.role),
            |request, deleted| match deleted {
                Ok(()) => log::deleted_role(&request.role),
                Err(EtcdError::InvalidAuthManagement) => log::cannot_delete_root_role(),
                Err(_) => {}
            },
        )?;
        Ok(Response::new(AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<AuthRoleGrantPermissionResponse>, Status> {
        let header = self.change::<methods::auth::RoleGrantPermission, _>(
            request,
            |store, request| store.grant_permission(&request.name, request.perm.clone()),
            |request, granted| {
                if granted.is_ok() {
                    log::granted_permission(request);
                }
            },
        )?;
        Ok(Response::new(AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<AuthRoleRevokePermissionResponse>, Status> {
        let header = self.change::<methods::auth::RoleRevokePermission, _>(
            request,
            |store, request| {
                store.revoke_permission(&request.role, &request.key, &request.range_end)
            },
            |request, revoked| {
                if revoked.is_ok() {
                    log::revoked_permission(&request.role, &request.key, &request.range_end);
                }
            },
        )?;
        Ok(Response::new(AuthRoleRevokePermissionResponse { header }))
    }
}

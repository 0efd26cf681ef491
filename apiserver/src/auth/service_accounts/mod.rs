//! The signatures of the tokens of service accounts.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use serde_json::{Value, json};

use crate::auth::User;

/// The issuer of tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The beginning of the names of service accounts as users.
const PREFIX: &str = "system:serviceaccount:";

/// Signs and verifies the tokens of service accounts.
pub(crate) struct ServiceAccounts {
    pub(crate) issuer: String,
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl std::fmt::Debug for ServiceAccounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceAccounts")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl ServiceAccounts {
    /// Returns a new key.
    pub(crate) fn generate() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random);
        let document = document.expect("the system has random numbers");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random);
        Self {
            issuer: ISSUER.to_owned(),
            key: key.expect("a new key is valid"),
            random,
        }
    }

    /// Returns a signed token with claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "JWT"});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.key.sign(&self.random, signed.as_bytes());
        let signature = signature.expect("the system has random numbers");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// Returns the user of a token that this server has signed and that has not expired at `now`, in seconds since
    /// 1970.
    pub(crate) fn user(&self, token: &str, now: i64) -> Option<User> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key());
        public.verify(signed.as_bytes(), &signature).ok()?;
        let (_, claims) = signed.split_once('.')?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let is_valid = claims["exp"].as_i64()? > now && claims["iss"] == self.issuer;
        let is_ours = claims["aud"]
            .as_array()?
            .iter()
            .any(|audience| *audience == self.issuer);
        let name = claims["sub"].as_str()?;
        let (namespace, _) = name.strip_prefix(PREFIX)?.split_once(':')?;
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
        let uid = claims["kubernetes.io"]["serviceaccount"]["uid"].as_str();
        let user = User {
            uid: uid.unwrap_or_default().to_owned(),
            ..User::new(name, groups)
        };
        (is_valid && is_ours).then_some(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_service_account_until_they_expire() {
        let accounts = ServiceAccounts::generate();
        let claims = json!({
            "iss": ISSUER, "sub": "system:serviceaccount:a:b", "aud": [ISSUER], "exp": 100,
            "kubernetes.io": {"serviceaccount": {"uid": "u"}},
        });
        let token = accounts.sign(&claims);
        let user = accounts.user(&token, 99).unwrap();
        assert_eq!(user.name, "system:serviceaccount:a:b");
        assert_eq!(
            user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:a"]
        );
        assert_eq!(accounts.user(&token, 100), None);
        assert_eq!(ServiceAccounts::generate().user(&token, 99), None);
        let mut forged = claims.clone();
        forged["sub"] = "system:serviceaccount:kube-system:root".into();
        let parts: Vec<&str> = token.split('.').collect();
        let forged = URL_SAFE_NO_PAD.encode(forged.to_string());
        assert_eq!(
            accounts.user(&format!("{}.{forged}.{}", parts[0], parts[2]), 99),
            None
        );
    }
}

package metering

import (
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	passwordvalidator "github.com/wagslane/go-password-validator"
)

// Role is the set of permissions of a member.
type Role string

const (
	RoleOwner     Role = "owner" // one per tenant
	RoleAdmin     Role = "admin"
	RoleDeveloper Role = "developer"
	RoleBilling   Role = "billing"
	RoleViewer    Role = "viewer"
)

// Values returns all roles.
func (Role) Values() []Role {
	return []Role{RoleOwner, RoleAdmin, RoleDeveloper, RoleBilling, RoleViewer}
}

// MaxMembers is the maximum number of members and pending invitations of a tenant.
const MaxMembers = 1_000

// Member is a person in one tenant, with a role there.
type Member struct {
	ID        MemberID
	TenantID  TenantID
	Email     string
	Name      string
	Role      Role
	PersonID  *PersonID // one person can have memberships in several tenants, with one password; nil: no password
	CreatedAt time.Time
}

// Membership is a member together with its tenant.
type Membership struct {
	Member Member
	Tenant Tenant
}

// KeysChoice decides what happens to the valid credentials of a removed member.
type KeysChoice string

const (
	HandOverKeys KeysChoice = "hand_over" // the actor that performs the removal becomes responsible for the credentials
	RevokeKeys   KeysChoice = "revoke"
)

// Values returns all choices.
func (KeysChoice) Values() []KeysChoice { return []KeysChoice{HandOverKeys, RevokeKeys} }

const (
	maxEmail    = 254 // RFC 5321, 4.5.3.1.3
	minPassword = 12  // in characters
	maxPassword = 256
)

// emailPattern accepts every address that a mail server could accept. Only an issuer that has verified an
// address knows whether it exists.
var emailPattern = regexp.MustCompile(`^[^\s@<>"(),:;\\\[\]\x00-\x1f\x7f]+@[^\s@<>"(),:;\\\[\]\x00-\x1f\x7f]+$`)

// ValidEmail returns an error if the text is not an e-mail address.
func ValidEmail(location, text string) error {
	if longerThan(maxEmail, text) || !utf8.ValidString(text) || !emailPattern.MatchString(text) {
		return Invalid(location, "must be an e-mail address of at most %d characters", maxEmail)
	}
	return nil
}

// FoldEmail returns the form in which addresses are compared, with ASCII letters in lower case. Other
// letters stay unchanged, because two people may have addresses that differ only by Unicode case folding.
func FoldEmail(email string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, email)
}

// leastEntropy is the minimum entropy of a password in bits. Common weak passwords have less: keyboard
// rows, repeats, a word with digits.
const leastEntropy = 55

// ValidPassword returns an error if a new password is too short or easy to guess (NIST SP 800-63B,
// 3.1.1.2).
func ValidPassword(location, text string) error {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) < minPassword || longerThan(maxPassword, text) {
		return Invalid(location, "must have %d to %d characters, in UTF-8", minPassword, maxPassword)
	}
	if passwordvalidator.GetEntropy(text) < leastEntropy {
		return Invalid(location, "is easy to guess; choose a longer one of several words, or generate one with a password manager")
	}
	return nil
}

// Validate returns an error if a field that a caller can set is not valid.
func (m Member) Validate() error {
	if err := ValidEmail("body.email", m.Email); err != nil {
		return err
	}
	return ValidName(m.Name)
}

// InvitationLasts is the time in which an invitation can be accepted.
const InvitationLasts = 7 * 24 * time.Hour

// Invitation is a pending link to a tenant. Accepting the invitation creates a member. If MemberID is set,
// accepting it resets the credentials of that member instead.
type Invitation struct {
	ID        InvitationID
	TenantID  TenantID
	MemberID  *MemberID
	Email     string
	Name      string
	Role      Role
	LastFour  string // of the token
	CreatedAt time.Time
	CreatedBy Actor
	ExpiresAt time.Time
}

// Session is one sign-in of a member. Its token contains the random id, so the signing key alone does not
// suffice to forge a token.
type Session struct {
	ID        uuid.UUID
	TenantID  TenantID
	MemberID  MemberID
	CreatedAt time.Time
	ExpiresAt time.Time
	EndedAt   *time.Time
}

// Live reports whether the session is accepted at now.
func (s Session) Live(now time.Time) bool { return s.EndedAt == nil && now.Before(s.ExpiresAt) }

// OIDC is the OpenID Connect issuer at which a tenant's members sign in.
type OIDC struct {
	Issuer       string
	ClientID     string
	SealedSecret []byte // nil for a public client
	UpdatedAt    time.Time
}

// Identity is an account at an issuer. It is known to one tenant only.
type Identity struct {
	Issuer  string
	Subject string
}

// SignIn is a sign-in that has started: the browser was sent to the issuer and has not returned yet.
type SignIn struct {
	TenantID     TenantID
	StateHash    []byte        // of the state parameter, which identifies the sign-in in the browser
	InvitationID *InvitationID // the invitation that the sign-in accepts; nil: none
	ExpiresAt    time.Time
}

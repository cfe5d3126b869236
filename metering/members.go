package metering

import (
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	passwordvalidator "github.com/wagslane/go-password-validator"
)

// Role is what a member of a tenant may do.
type Role string

const (
	RoleOwner     Role = "owner" // one per tenant
	RoleAdmin     Role = "admin"
	RoleDeveloper Role = "developer"
	RoleBilling   Role = "billing"
	RoleViewer    Role = "viewer"
)

// Values are all roles.
func (Role) Values() []Role {
	return []Role{RoleOwner, RoleAdmin, RoleDeveloper, RoleBilling, RoleViewer}
}

// MaxMembers is how many members and pending invitations a tenant may have.
const MaxMembers = 1_000

// Member is a person in one tenant, with a role there.
type Member struct {
	ID        MemberID
	TenantID  TenantID
	Email     string
	Name      string
	Role      Role
	PersonID  *PersonID // who signs in with a password, perhaps to other tenants too; nil: this member has none
	CreatedAt time.Time
}

// Membership is a member and the tenant.
type Membership struct {
	Member Member
	Tenant Tenant
}

// KeysChoice is what becomes of the live credentials that somebody has made who is
// removed.
type KeysChoice string

const (
	HandOverKeys KeysChoice = "hand_over" // who removes the maker answers for them
	RevokeKeys   KeysChoice = "revoke"
)

// Values are all choices.
func (KeysChoice) Values() []KeysChoice { return []KeysChoice{HandOverKeys, RevokeKeys} }

const (
	maxEmail    = 254 // RFC 5321, 4.5.3.1.3
	minPassword = 12  // characters, as the others
	maxPassword = 256
)

// emailPattern lets through what a mail server could take. It is no more
// exact than that: only an issuer that has verified an address knows it.
var emailPattern = regexp.MustCompile(`^[^\s@<>"(),:;\\\[\]\x00-\x1f\x7f]+@[^\s@<>"(),:;\\\[\]\x00-\x1f\x7f]+$`)

// ValidEmail names the rule that an e-mail address breaks.
func ValidEmail(location, text string) error {
	if longerThan(maxEmail, text) || !utf8.ValidString(text) || !emailPattern.MatchString(text) {
		return Invalid(location, "must be an e-mail address of at most %d characters", maxEmail)
	}
	return nil
}

// FoldEmail returns the address by which an e-mail is compared: in lower case, as
// far as it is ASCII. What Unicode folds together may be two people's addresses.
func FoldEmail(email string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, email)
}

// leastEntropy is below that of what people choose who do not think: rows of keys,
// repeats, a word and its digits. In bits.
const leastEntropy = 55

// ValidPassword names the rule that a new password breaks: it is long enough, and
// none of those that are guessed first (NIST SP 800-63B, 3.1.1.2).
func ValidPassword(location, text string) error {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) < minPassword || longerThan(maxPassword, text) {
		return Invalid(location, "must have %d to %d characters, in UTF-8", minPassword, maxPassword)
	}
	if passwordvalidator.GetEntropy(text) < leastEntropy {
		return Invalid(location, "is easy to guess; choose a longer one of several words, or generate one with a password manager")
	}
	return nil
}

// Validate checks what may be chosen for a member.
func (m Member) Validate() error {
	if err := ValidEmail("body.email", m.Email); err != nil {
		return err
	}
	return ValidName(m.Name)
}

// InvitationLasts is for how long an invitation can be accepted.
const InvitationLasts = 7 * 24 * time.Hour

// Invitation is a link that waits to be accepted: by somebody who becomes a member
// by it or, with a MemberID, by a member who gets another way to sign in.
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

// Session is one sign-in of a member, from which its token was made. Its id is
// random: a token cannot be made by guessing one, even with the signing key.
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

// OIDC is how a tenant's members sign in at an issuer of its own.
type OIDC struct {
	Issuer       string
	ClientID     string
	SealedSecret []byte // nil for a public client
	UpdatedAt    time.Time
}

// Identity is an account at an issuer, which means something in one tenant alone.
type Identity struct {
	Issuer  string
	Subject string
}

// SignIn is a sign-in at an issuer that has begun, and for a short time waits
// for the browser to come back.
type SignIn struct {
	TenantID     TenantID
	StateHash    []byte        // of what names it in the browser
	InvitationID *InvitationID // which is accepted by it; nil: none
	ExpiresAt    time.Time
}

package metering

import "time"

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

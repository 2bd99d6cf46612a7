"""How hosts are paid: `onboarding`, the run of a Friday (`weekly`), and one payout (`paying`)."""

"""What several tests share: tasks, tiny models, devices that record, fixtures. No test is here."""

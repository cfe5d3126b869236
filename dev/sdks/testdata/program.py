"""What dev/sdks/run runs with the SDK that openapi-python-client generates."""

import os

from sdk import AuthenticatedClient
from sdk.api.billing import sync_billing
from sdk.api.customers import get_customer
from sdk.api.events import ingest_events
from sdk.api.usage import get_usage_total
from sdk.models import Event, EventBatch, GetUsageTotalOdometerNumbers, SyncBilling, SyncBillingOdometerNumbers

customer = os.environ["CUSTOMER"]
client = AuthenticatedClient(base_url=os.environ["ODOMETER_URL"], token=os.environ["ODOMETER_API_KEY"], timeout=1200)
events = [Event(event_type="call", customer_id=customer, value=value) for value in (335549.36, 0.01, 1000000.1)]
ingest_events.sync(client=client, body=EventBatch(events=events))
found = get_customer.sync(customer, client=client)
total = get_usage_total.sync(client=client, customer=customer, odometer_numbers=GetUsageTotalOdometerNumbers.STRING)
run = sync_billing.sync(client=client, odometer_numbers=SyncBillingOdometerNumbers.STRING, body=SyncBilling(customer_external_id=customer))
print(found.external_id, total.total, run.lines[0].usage, run.status.value)

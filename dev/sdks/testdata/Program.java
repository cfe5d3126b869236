import java.math.BigDecimal;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.BillingApi;
import org.openapitools.client.api.CustomersApi;
import org.openapitools.client.api.EventsApi;
import org.openapitools.client.api.UsageApi;
import org.openapitools.client.model.Customer;
import org.openapitools.client.model.Event;
import org.openapitools.client.model.EventBatch;
import org.openapitools.client.model.SyncBilling;
import org.openapitools.client.model.SyncRun;

/** What dev/sdks/run compiles with the SDK that openapi-generator generates for Java. */
public class Program {
  public static void main(String[] arguments) throws Exception {
    String customer = System.getenv("CUSTOMER");
    ApiClient client = new ApiClient().setBasePath(System.getenv("ODOMETER_URL"));
    client.setReadTimeout(0); // a busy machine syncs for longer than the default of ten seconds
    client.addDefaultHeader("Authorization", "Bearer " + System.getenv("ODOMETER_API_KEY"));
    EventBatch batch = new EventBatch();
    for (double value : new double[] {335549.36, 0.01, 1000000.1}) {
      batch.addEventsItem(new Event().eventType("call").customerId(customer).value(value));
    }
    new EventsApi(client).ingestEvents(batch);
    Customer found = new CustomersApi(client).getCustomer(customer);
    BigDecimal total = new BigDecimal(new UsageApi(client).getUsageTotal(customer, "string", null, null, null).getTotal());
    SyncRun run = new BillingApi(client).syncBilling("string", new SyncBilling().customerExternalId(customer));
    System.out.println(found.getExternalId() + " " + total.toPlainString() + " " + run.getLines().get(0).getUsage() + " " + run.getStatus());
    client.getHttpClient().connectionPool().evictAll();
    System.exit(0);
  }
}

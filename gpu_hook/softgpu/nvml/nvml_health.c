/* Heat, power, clocks and link. The software GPU has none to measure: its answers are stable,
 * plausible for dashboards, and follow the utilisation. */
#include "device/engine.h"
#include "nvml/nvml_observer.h"

#define IDLE_CELSIUS 30
#define BUSY_CELSIUS 60
#define IDLE_MILLIWATTS 10000
#define BUSY_MILLIWATTS 100000
#define CLOCK_MEGAHERTZ 1000

/* value = idle + (busy - idle) x utilisation of the last second */
static nvmlReturn_t scaled(nvmlDevice_t device, unsigned *value, unsigned idle, unsigned busy)
{
    nvmlUtilization_t load;
    if (value == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = nvmlDeviceGetUtilizationRates(device, &load);
    if (result == NVML_SUCCESS)
        *value = idle + (busy - idle) * load.gpu / 100;
    return result;
}

static nvmlReturn_t constant(nvmlDevice_t device, unsigned *value, unsigned answer)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || value == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *value = answer;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType,
                                             unsigned int *temp)
{
    return sensorType == NVML_TEMPERATURE_GPU ? scaled(device, temp, IDLE_CELSIUS, BUSY_CELSIUS)
                                              : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    unsigned celsius;
    if (temperature == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = nvmlDeviceGetTemperature(device, temperature->sensorType, &celsius);
    if (result == NVML_SUCCESS)
        temperature->temperature = (int)celsius;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
    return scaled(device, power, IDLE_MILLIWATTS, BUSY_MILLIWATTS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit)
{
    return constant(device, limit, BUSY_MILLIWATTS);
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit)
{
    return constant(device, limit, BUSY_MILLIWATTS);
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    return (unsigned)type < NVML_CLOCK_COUNT ? constant(device, clock, CLOCK_MEGAHERTZ) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    return nvmlDeviceGetClockInfo(device, type, clock);
}

/* Kilobytes per second; the traffic is not sampled. */
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                                unsigned int *value)
{
    return (unsigned)counter < NVML_PCIE_UTIL_COUNT ? constant(device, value, 0) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *maxLinkGen)
{
    return constant(device, maxLinkGen, 4);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *maxLinkWidth)
{
    return constant(device, maxLinkWidth, 16);
}

/* The call succeeds and marks each field unsupported: a dashboard polls it twice a second. */
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || values == NULL || valuesCount < 0)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < valuesCount; i++) {
        values[i].timestamp = 0;
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}
